package testcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// RabbitMQ is a cluster of three nodes. Only one goroutine may use it at a time, apart from URI and
// Dial.
type RabbitMQ struct {
	work  *workspace
	bin   string
	nodes []*node
	dist  []int // the ports by which the nodes reach each other
	epmd  *server
	epmds int // the port of that
}

// rabbitmqBin is where Debian keeps the programs: the ones in the PATH write to /var/log.
const rabbitmqBin = "/usr/lib/rabbitmq/bin/"

// StartRabbitMQ makes and starts a cluster, in half a minute. The caller has to Close it.
func StartRabbitMQ(ctx context.Context) (_ *RabbitMQ, err error) {
	r := &RabbitMQ{bin: rabbitmqBin}
	for _, program := range []string{r.bin + "rabbitmq-server", r.bin + "rabbitmqctl", "epmd"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	ports, err := freePorts(2*Nodes + 1)
	if err != nil {
		return nil, err
	}
	if r.work, err = newWorkspace("rabbitmq"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	r.dist, r.epmds = ports[Nodes:2*Nodes], ports[2*Nodes]
	for n := range Nodes {
		r.nodes = append(r.nodes, &node{name: fmt.Sprintf("rabbit%d", ports[n]), port: ports[n]})
	}
	r.epmd, err = r.work.serve("epmd", "epmd", "-port", strconv.Itoa(r.epmds), "-address", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	for n := range Nodes {
		if err := r.prepare(n); err != nil {
			return nil, err
		}
		if err := r.Start(ctx, n); err != nil { // the second and third one join the first
			return nil, err
		}
	}
	return r, nil
}

// prepare writes a node's settings: where it listens, and who else is there.
func (r *RabbitMQ) prepare(n int) error {
	var text strings.Builder
	fmt.Fprintf(&text, "listeners.tcp.1 = %s\ncluster_formation.peer_discovery_backend = classic_config\n", local(r.nodes[n].port))
	for i, peer := range r.nodes {
		fmt.Fprintf(&text, "cluster_formation.classic_config.nodes.%d = %s@localhost\n", i+1, peer.name)
	}
	return errors.Join(
		r.work.append(r.work.path(r.nodes[n].name+".conf"), text.String()),
		r.work.append(r.work.path(r.nodes[n].name+".plugins"), "[]."),
	)
}

// environment is that of a node and of the tools. All share one home, and so one cookie.
func (r *RabbitMQ) environment(n int) []string {
	name := r.nodes[n].name
	path := r.work.path(name)
	return []string{
		"HOME=" + r.work.folder, "LANG=C.UTF-8", "PATH=" + os.Getenv("PATH"),
		"ERL_EPMD_PORT=" + strconv.Itoa(r.epmds), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=" + name + "@localhost", "RABBITMQ_DIST_PORT=" + strconv.Itoa(r.dist[n]),
		"RABBITMQ_MNESIA_BASE=" + path, "RABBITMQ_LOG_BASE=" + path, "RABBITMQ_PID_FILE=" + path + ".own",
		"RABBITMQ_CONFIG_FILE=" + path, "RABBITMQ_ADVANCED_CONFIG_FILE=" + path + ".none",
		"RABBITMQ_CONF_ENV_FILE=" + path + ".no-env", "RABBITMQ_ENABLED_PLUGINS_FILE=" + path + ".plugins",
		// One scheduler: three nodes share the cores with their clients.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}",
	}
}

// Start starts a node, and returns when it takes clients.
func (r *RabbitMQ) Start(ctx context.Context, n int) (err error) {
	at := r.nodes[n]
	at.server, err = r.work.serve(at.name, "env", append(r.environment(n), r.bin+"rabbitmq-server")...)
	if err != nil {
		return err
	}
	return at.server.ready(ctx, func(ctx context.Context) error {
		conn, err := amqp091.DialConfig("amqp://guest:guest@"+local(at.port)+"/", amqp091.Config{Dial: dialer(ctx)})
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Kill ends a node with SIGKILL.
func (r *RabbitMQ) Kill(n int) error { return kill(r.nodes[n]) }

// Close ends all nodes and removes their data.
func (r *RabbitMQ) Close() error {
	var problems []error
	for n := range r.nodes {
		problems = append(problems, r.Kill(n))
	}
	problems = append(problems, kill(&node{server: r.epmd}))
	return errors.Join(append(problems, r.work.close())...)
}

// URI is for clients that connect with [RabbitMQ.Dial]: the address in it does not matter.
func (r *RabbitMQ) URI() string { return "amqp://guest:guest@" + local(r.nodes[0].port) + "/" }

// Dial connects to a node that listens, as through a load balancer.
func (r *RabbitMQ) Dial(network, _ string) (net.Conn, error) {
	var problems []error
	for _, n := range rand.Perm(len(r.nodes)) { //nolint:gosec // any order will do
		conn, err := dialer(context.Background())(network, local(r.nodes[n].port))
		if err == nil {
			return conn, nil
		}
		problems = append(problems, err)
	}
	return nil, errors.Join(problems...)
}

// dialer bounds the time of the handshake too, as the client's own does.
func dialer(ctx context.Context) func(network, address string) (net.Conn, error) {
	const limit = 5 * time.Second
	return func(network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(time.Now().Add(limit)) // the client lifts it after the handshake
	}
}

// Leader returns the node that leads a quorum queue, and whether all nodes have it.
func (r *RabbitMQ) Leader(ctx context.Context, queue string) (leader int, whole bool, err error) {
	for n := range r.nodes {
		if r.nodes[n].server == nil {
			continue
		}
		if leader, whole, err = r.ask(ctx, n, queue); err == nil {
			return leader, whole, nil
		}
	}
	return -1, false, err
}

func (r *RabbitMQ) ask(ctx context.Context, n int, queue string) (leader int, whole bool, err error) {
	command := r.work.command("env", append(r.environment(n), r.bin+"rabbitmqctl", "--quiet", "--formatter", "json",
		"--timeout", "10", "list_queues", "name", "leader", "online")...)
	output, err := command.Output()
	if err != nil {
		return -1, false, errors.Join(err, ctx.Err())
	}
	var queues []struct {
		Name, Leader string
		Online       []string
	}
	if err := json.Unmarshal(output, &queues); err != nil {
		return -1, false, fmt.Errorf("rabbitmqctl said %q: %w", output, err)
	}
	for _, q := range queues {
		for at, candidate := range r.nodes {
			if q.Name == queue && q.Leader == candidate.name+"@localhost" {
				return at, len(q.Online) == Nodes, nil
			}
		}
	}
	return -1, false, fmt.Errorf("queue %q has no leader: %s", queue, output)
}
