package chain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
)

const (
	natsNodes       = 3
	natsSubscribers = 2 // share the consumer, as two pods do
	natsStart       = 20 * time.Second
	natsWait        = 500 * time.Millisecond // for an answer; the client's default is five seconds
	natsAckWait     = time.Second            // the server's default is 30 seconds
	natsReconnect   = 50 * time.Millisecond
)

// natsCluster is three servers of NATS in this process, with JetStream on disk.
type natsCluster struct {
	folder  string
	options [natsNodes]natsserver.Options
	running [natsNodes]*natsserver.Server

	operator *natsclient.Conn
	stream   natsclient.JetStreamContext
	topic    string
}

// openNATS makes a stream with three replicas, and a durable consumer that hands out one message at
// a time. If the subscriber made the consumer, it would also delete it when it is closed.
func openNATS(ctx context.Context, topic string, logger watermill.LoggerAdapter) (_ *broker, err error) {
	c := &natsCluster{topic: topic}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	if err := c.provide(ctx); err != nil {
		return nil, err
	}
	stream := nats.JetStreamConfig{
		DurablePrefix: consumer, SubscribeOptions: []natsclient.SubOpt{natsclient.ManualAck()}, // else the client acks what is nacked too late
		ConnectOptions: []natsclient.JSOpt{natsclient.MaxWait(natsWait)},
	}
	publisher, err := nats.NewPublisher(nats.PublisherConfig{URL: c.urls(), NatsOptions: forEver(), JetStream: stream}, logger)
	if err != nil {
		return nil, err
	}
	subscriber, err := nats.NewSubscriber(nats.SubscriberConfig{
		URL: c.urls(), NatsOptions: forEver(), JetStream: stream, QueueGroupPrefix: consumer, SubscribersCount: natsSubscribers,
	}, logger)
	if err != nil {
		return nil, err
	}
	return &broker{
		publisher: publisher, subscriber: subscriber,
		faults: []fault{
			{name: outage, begin: c.stop, repair: c.start},
			{name: leaderKilled, begin: c.killLeader, repair: c.revive, survived: true},
		},
		close: c.close,
	}, nil
}

// forEver lets a client connect again however long the servers are away. By default it gives up
// after two minutes, and never works again.
func forEver() []natsclient.Option {
	return []natsclient.Option{natsclient.MaxReconnects(-1), natsclient.ReconnectWait(natsReconnect)}
}

// prepare decides where the servers listen: each has to know the others before it starts.
func (c *natsCluster) prepare() (err error) {
	if c.folder, err = os.MkdirTemp("", "postbox-nats-"); err != nil {
		return err
	}
	ports, err := freePorts(2 * natsNodes)
	if err != nil {
		return err
	}
	var routes []*url.URL
	for _, port := range ports[natsNodes:] {
		routes = append(routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))})
	}
	for i := range c.options {
		name := fmt.Sprint("node-", i)
		c.options[i] = natsserver.Options{
			ServerName: name, Host: "127.0.0.1", Port: ports[i], JetStream: true, StoreDir: filepath.Join(c.folder, name),
			NoLog: true, NoSigs: true, Routes: routes,
			Cluster: natsserver.ClusterOpts{Name: "postbox", Host: "127.0.0.1", Port: ports[natsNodes+i]},
		}
	}
	return nil
}

func freePorts(number int) ([]int, error) {
	var ports []int
	for range number {
		listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is over at once
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }() // when all are known, so that they differ
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func (c *natsCluster) urls() string {
	var urls []string
	for i := range c.options {
		urls = append(urls, "nats://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(c.options[i].Port)))
	}
	return strings.Join(urls, ",")
}

// start starts the servers that do not run.
func (c *natsCluster) start(context.Context) error {
	for i := range c.running {
		if c.running[i] != nil {
			continue
		}
		options := c.options[i]
		server, err := natsserver.NewServer(&options)
		if err != nil {
			return err
		}
		server.Start()
		c.running[i] = server
	}
	for _, server := range c.running {
		if !server.ReadyForConnections(natsStart) {
			return errors.New("NATS does not accept connections")
		}
	}
	return nil
}

func (c *natsCluster) stop(context.Context) error {
	for i := range c.running {
		c.kill(i)
	}
	return nil
}

func (c *natsCluster) kill(node int) {
	if server := c.running[node]; server != nil {
		server.Shutdown()
		server.WaitForShutdown()
		c.running[node] = nil
	}
}

// provide makes the stream and the consumer, when the cluster has found a leader.
func (c *natsCluster) provide(ctx context.Context) (err error) {
	if c.operator, err = natsclient.Connect(c.urls(), forEver()...); err != nil {
		return err
	}
	if c.stream, err = c.operator.JetStream(); err != nil {
		return err
	}
	var last error
	err = poll(ctx, func() (bool, error) {
		_, last = c.stream.AddStream(&natsclient.StreamConfig{Name: c.topic, Subjects: []string{c.topic}, Replicas: natsNodes})
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	_, err = c.stream.AddConsumer(c.topic, &natsclient.ConsumerConfig{
		Durable: consumer, DeliverSubject: natsclient.NewInbox(), DeliverPolicy: natsclient.DeliverAllPolicy,
		DeliverGroup: consumer, AckPolicy: natsclient.AckExplicitPolicy, AckWait: natsAckWait, MaxAckPending: 1,
	})
	return err
}

// leader of the stream, and whether the other replicas are up to date.
func (c *natsCluster) leader(ctx context.Context) (node int, whole bool) {
	info, err := c.stream.StreamInfo(c.topic, natsclient.Context(ctx))
	if err != nil || info.Cluster == nil {
		return -1, false
	}
	whole = len(info.Cluster.Replicas) == natsNodes-1
	for _, replica := range info.Cluster.Replicas {
		whole = whole && replica.Current && !replica.Offline
	}
	for i := range c.options {
		if c.options[i].ServerName == info.Cluster.Leader {
			return i, whole
		}
	}
	return -1, false
}

// killLeader ends the server that leads the stream.
func (c *natsCluster) killLeader(ctx context.Context) error {
	node := -1
	err := poll(ctx, func() (bool, error) {
		var whole bool
		node, whole = c.leader(ctx)
		return node >= 0 && whole, nil
	})
	if err != nil {
		return fmt.Errorf("the stream has no leader, or not all replicas: %w", err)
	}
	c.kill(node)
	return nil
}

// revive starts the killed server, and waits until the stream has three replicas again.
func (c *natsCluster) revive(ctx context.Context) error {
	if err := c.start(ctx); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		_, whole := c.leader(ctx)
		return whole, nil
	})
}

func (c *natsCluster) close() error {
	if c.operator != nil {
		c.operator.Close()
	}
	return errors.Join(c.stop(context.Background()), os.RemoveAll(c.folder))
}
