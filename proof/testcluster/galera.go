package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Galera is a cluster of three nodes of MariaDB that all take writes. Only one goroutine may use it
// at a time, apart from the addresses.
type Galera struct {
	servers *MariaDB // for what a server of MariaDB needs; its own replication is not used
	nodes   []*node
	places  []galeraPlace
}

// galeraPlace is where a node is for the others: for its group, for changes that it has missed, and
// for a copy of all data.
type galeraPlace struct{ group, changes, copied string }

// galeraProvider is where Debian's package galera-4 has its library.
const galeraProvider = "/usr/lib/galera/libgalera_smm.so"

// StartGalera makes and starts all nodes, in some twenty seconds. Each copies the data of those
// before it. The caller has to Close it.
func StartGalera(ctx context.Context) (_ *Galera, err error) {
	if err := MariaDBAvailable(); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("rsync"); err != nil { // copies the data
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if _, err := os.Stat(galeraProvider); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	const each = 4
	ports, err := freePorts(each * Nodes)
	if err != nil {
		return nil, err
	}
	g := &Galera{servers: &MariaDB{}}
	if g.servers.work, err = newWorkspace("mysql"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	for n := range Nodes {
		mine := ports[each*n:]
		g.nodes = append(g.nodes, &node{name: fmt.Sprintf("node%d", n+1), port: mine[0]})
		g.places = append(g.places, galeraPlace{local(mine[1]), local(mine[2]), local(mine[3])})
		if err := g.servers.install(g.nodes[n]); err != nil {
			return nil, err
		}
		if err := g.Start(ctx, n); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Start starts a node, and returns when it has all data and takes writes. The first one makes a new
// cluster if no other runs.
func (g *Galera) Start(ctx context.Context, n int) error {
	var peers []string
	for i, other := range g.nodes {
		if i != n && other.server != nil {
			peers = append(peers, g.places[i].group)
		}
	}
	at := g.places[n]
	err := g.servers.start(ctx, g.nodes[n], n+1, "--wsrep-on=ON", "--wsrep-provider="+galeraProvider,
		"--wsrep-cluster-address=gcomm://"+strings.Join(peers, ","), "--wsrep-node-name="+g.nodes[n].name,
		"--wsrep-provider-options=base_port="+portOf(at.group)+";gmcast.listen_addr=tcp://"+at.group+";ist.recv_addr="+at.changes,
		"--wsrep-node-address="+at.group, "--wsrep-sst-receive-address="+at.copied, "--wsrep-sst-method=rsync",
		"--wsrep-sync-wait=1", "--innodb-autoinc-lock-mode=2")
	if err != nil {
		return err
	}
	return g.nodes[n].server.ready(ctx, func(ctx context.Context) error {
		var name, state string
		if err := g.servers.askRow(ctx, g.nodes[n], "SHOW STATUS LIKE 'wsrep_local_state_comment'", &name, &state); err != nil {
			return err
		}
		if state != "Synced" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
}

func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// Kill ends a node with SIGKILL.
func (g *Galera) Kill(n int) error { return kill(g.nodes[n]) }

// Address is that of a node.
func (g *Galera) Address(n int) string { return local(g.nodes[n].port) }

// DSN reaches a database on a node.
func (g *Galera) DSN(n int, database string) string { return MariaDSN(g.Address(n), database) }

// Close stops all nodes and removes their data.
func (g *Galera) Close() error {
	var problems []error
	for n := range g.nodes {
		problems = append(problems, g.Kill(n))
	}
	return errors.Join(append(problems, g.servers.work.close())...)
}
