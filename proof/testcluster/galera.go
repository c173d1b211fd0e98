package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// Galera is a cluster of two nodes of MariaDB that both take writes.
type Galera struct {
	servers *MariaDB // not connected to each other by replication of MariaDB's own
}

// galeraProvider is where Debian's package galera-4 has its library.
const galeraProvider = "/usr/lib/galera/libgalera_smm.so"

// StartGalera makes and starts both nodes, in some ten seconds. The second one copies the data of
// the first one. The caller has to Close it.
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
	m := &MariaDB{}
	if m.work, err = newWorkspace("mysql"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	ports, err := freePorts(8)
	if err != nil {
		return nil, err
	}
	m.primary, m.replica = &node{name: "node1", port: ports[0]}, &node{name: "node2", port: ports[1]}
	address := "gcomm://"
	for id, n := range []*node{m.primary, m.replica} {
		if err := m.install(n); err != nil {
			return nil, err
		}
		group, state, copied := local(ports[2+id]), local(ports[4+id]), local(ports[6+id])
		err := m.start(ctx, n, id+1, "--wsrep-on=ON", "--wsrep-provider="+galeraProvider, "--wsrep-cluster-address="+address,
			"--wsrep-provider-options=base_port="+strconv.Itoa(ports[2+id])+";gmcast.listen_addr=tcp://"+group+";ist.recv_addr="+state,
			"--wsrep-node-address="+group, "--wsrep-sst-receive-address="+copied, "--wsrep-sst-method=rsync", "--wsrep-sync-wait=1",
			"--innodb-autoinc-lock-mode=2")
		if err != nil {
			return nil, err
		}
		address += group
	}
	return &Galera{servers: m}, nil
}

// DSN reaches a database on the first (0) or the second (1) node.
func (g *Galera) DSN(node int, database string) string {
	ports := []int{g.servers.primary.port, g.servers.replica.port}
	return mariaDSN(local(ports[node]), database)
}

// Close stops both nodes and removes their data.
func (g *Galera) Close() error { return g.servers.Close() }
