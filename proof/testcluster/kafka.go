package testcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// Nodes is how many a cluster of brokers has.
const Nodes = 3

// Kafka is a cluster of three, each of them broker and controller. What is acked by all in sync is
// on two of them at least. Only one goroutine may use it at a time, apart from the addresses.
type Kafka struct {
	work  *workspace
	jars  string
	nodes []*node
	peers string // the controllers
}

// kafkaJars is the folder into which scripts/services puts them, which is not there before it has
// run.
func kafkaJars() (string, error) {
	cache := cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(os.Getenv("HOME"), ".cache")) // as that script has it
	found, _ := filepath.Glob(filepath.Join(cache, "postbox", "kafka-*"))                    // the pattern is well formed
	complete := regexp.MustCompile(`kafka-\d+(\.\d+)*$`)
	found = slices.DeleteFunc(found, func(folder string) bool { return !complete.MatchString(folder) })
	if len(found) == 0 {
		return "", fmt.Errorf("%w: no jars of Kafka in %s", ErrUnavailable, cache)
	}
	return slices.Max(found), nil
}

// StartKafka makes and starts a cluster, in half a minute. The caller has to Close it.
func StartKafka(ctx context.Context) (_ *Kafka, err error) {
	if _, err := exec.LookPath("java"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	k := &Kafka{}
	if k.jars, err = kafkaJars(); err != nil {
		return nil, err
	}
	ports, err := freePorts(2 * Nodes)
	if err != nil {
		return nil, err
	}
	if k.work, err = newWorkspace(""); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	peers := make([]string, 0, Nodes)
	for n := range Nodes {
		k.nodes = append(k.nodes, &node{name: fmt.Sprintf("kafka%d", n+1), port: ports[n]})
		peers = append(peers, fmt.Sprintf("%d@%s", n+1, local(ports[Nodes+n])))
	}
	k.peers = strings.Join(peers, ",")
	for n := range Nodes {
		if err := k.prepare(n, ports[Nodes+n]); err != nil {
			return nil, err
		}
	}
	for n := range Nodes { // each waits for a second one
		if err := k.launch(n); err != nil {
			return nil, err
		}
	}
	for n := range Nodes {
		if err := k.ready(ctx, n); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// kafkaProperties is like scripts/kafka/server.properties, with copies on all nodes.
const kafkaProperties = `process.roles=broker,controller
node.id=%[1]d
controller.quorum.voters=%[2]s
listeners=PLAINTEXT://%[3]s,CONTROLLER://%[4]s
advertised.listeners=PLAINTEXT://%[3]s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=%[5]s
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.index.size.max.bytes=1048576
log.cleaner.enable=false
num.network.threads=2
num.io.threads=4
background.threads=2
`

// clusterID is any, in Kafka's form.
const clusterID = "MkU3OEVBNTcwNTJENDM2Qg"

func (k *Kafka) prepare(n, controller int) error {
	at := k.nodes[n]
	text := fmt.Sprintf(kafkaProperties, n+1, k.peers, local(at.port), local(controller), k.work.path(at.name))
	if err := k.work.append(k.properties(n), text); err != nil {
		return err
	}
	return k.work.run("java", k.java("kafka.tools.StorageTool", "format", "-t", clusterID, "-c", k.properties(n))...)
}

func (k *Kafka) properties(n int) string { return k.work.path(k.nodes[n].name + ".properties") }

// java is a small machine that starts quickly: three of them share the cores with the clients.
func (k *Kafka) java(words ...string) []string {
	return append([]string{
		"-Xmx256m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData",
		"-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(k.jars, "*"),
	}, words...)
}

func (k *Kafka) launch(n int) (err error) {
	k.nodes[n].server, err = k.work.serve(k.nodes[n].name, "java", k.java("kafka.Kafka", k.properties(n))...)
	return err
}

func (k *Kafka) ready(ctx context.Context, n int) error {
	return k.nodes[n].server.ready(ctx, func(context.Context) error {
		known, err := k.metadata(n, "")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(known.Brokers, func(b *sarama.Broker) bool { return b.ID() == int32(n+1) }) { //nolint:gosec // one of three
			return errors.New("the cluster does not know it yet")
		}
		return nil
	})
}

// Close ends all nodes and removes their data.
func (k *Kafka) Close() error {
	var problems []error
	for n := range k.nodes {
		problems = append(problems, k.Kill(n))
	}
	return errors.Join(append(problems, k.work.close())...)
}

// Addresses are those of all nodes.
func (k *Kafka) Addresses() []string { return addresses(k.nodes) }

func addresses(nodes []*node) []string {
	all := make([]string, len(nodes))
	for i, n := range nodes {
		all[i] = local(n.port)
	}
	return all
}

// Kill ends a node with SIGKILL.
func (k *Kafka) Kill(n int) error { return kill(k.nodes[n]) }

// Start starts a node that was killed, and returns when the cluster has it again.
func (k *Kafka) Start(ctx context.Context, n int) error {
	if err := k.launch(n); err != nil {
		return err
	}
	return k.ready(ctx, n)
}

// Leader returns the node that leads a partition, and whether all copies of the topic are in sync.
// It fails while there is none.
func (k *Kafka) Leader(_ context.Context, topic string, partition int) (leader int, whole bool, err error) {
	for n := range k.nodes {
		var known *sarama.MetadataResponse
		if k.nodes[n].server == nil {
			continue
		}
		if known, err = k.metadata(n, topic); err != nil {
			continue
		}
		leader, whole = -1, true
		for _, p := range known.Topics[0].Partitions {
			whole = whole && len(p.Isr) == Nodes
			if int(p.ID) == partition {
				leader = int(p.Leader) - 1
			}
		}
		if leader < 0 {
			return leader, false, fmt.Errorf("partition %d has no leader", partition)
		}
		return leader, whole, nil
	}
	return -1, false, err
}

// metadata asks one node, about a topic if there is one.
func (k *Kafka) metadata(n int, topic string) (*sarama.MetadataResponse, error) {
	config := sarama.NewConfig()
	config.Net.DialTimeout, config.Net.ReadTimeout = time.Second, 5*time.Second
	broker := sarama.NewBroker(local(k.nodes[n].port))
	if err := broker.Open(config); err != nil {
		return nil, err
	}
	defer func() { _ = broker.Close() }()
	request := &sarama.MetadataRequest{Version: 1, Topics: []string{}}
	if topic != "" {
		request.Topics = []string{topic}
	}
	known, err := broker.GetMetadata(request)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", strconv.Itoa(n+1), err)
	}
	if topic != "" && (len(known.Topics) != 1 || known.Topics[0].Err != sarama.ErrNoError) {
		return nil, fmt.Errorf("node %d does not know the topic", n+1)
	}
	return known, nil
}
