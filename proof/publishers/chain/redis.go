package chain

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
)

// openRedisGroup has a consumer of a group. When an answer to it is lost, its message is pending,
// and comes a while later, behind others.
func openRedisGroup(ctx context.Context, _ string, logger watermill.LoggerAdapter) (*broker, error) {
	const idle = time.Second // until a pending message comes again; the default is a minute
	b, err := openRedis(ctx, redisstream.SubscriberConfig{
		ConsumerGroup: consumer, OldestId: "0", MaxIdleTime: idle, ClaimInterval: idle,
	}, logger)
	if err == nil {
		b.unordered = true
	}
	return b, err
}

// openRedisReader has a reader without a group. It keeps its place itself, and begins each time
// with the first message of the stream.
func openRedisReader(ctx context.Context, _ string, logger watermill.LoggerAdapter) (*broker, error) {
	return openRedis(ctx, redisstream.SubscriberConfig{FanOutOldestId: "0"}, logger)
}

// openRedis starts a Redis if the machine has one, and otherwise a stand-in.
func openRedis(ctx context.Context, subscribe redisstream.SubscriberConfig, logger watermill.LoggerAdapter) (*broker, error) {
	if program, err := exec.LookPath("redis-server"); err == nil {
		return openRealRedis(ctx, program, subscribe, logger)
	}
	server, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	// It closes its connections and its port when it is stopped, and keeps its streams. Once it was
	// restarted, it does not answer reads that block.
	const noBlock = -1
	subscribe.DisableIndefiniteInitialBlock, subscribe.BlockTime = true, noBlock
	return redisClients(server.Addr(), subscribe, &broker{
		faults: []fault{{
			name:   outage,
			begin:  func(context.Context) error { server.Close(); return nil },
			repair: func(context.Context) error { return server.Restart() },
		}},
		close: func() error { server.Close(); return nil },
	}, logger)
}

func redisClients(address string, subscribe redisstream.SubscriberConfig, b *broker, logger watermill.LoggerAdapter) (*broker, error) {
	client := func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: address}) }
	subscribe.Client, subscribe.NackResendSleep = client(), redisstream.NoSleep
	var err1, err2 error
	b.publisher, err1 = redisstream.NewPublisher(redisstream.PublisherConfig{Client: client()}, logger)
	b.subscriber, err2 = redisstream.NewSubscriber(subscribe, logger)
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// realRedis is a process that writes its log to disk before it answers.
type realRedis struct {
	program, folder, port string
	running               *exec.Cmd
}

func openRealRedis(ctx context.Context, program string, subscribe redisstream.SubscriberConfig, logger watermill.LoggerAdapter) (*broker, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "postbox-redis-")
	if err != nil {
		return nil, err
	}
	r := &realRedis{program: program, folder: folder, port: strconv.Itoa(ports[0])}
	b := &broker{faults: []fault{{name: outage, begin: r.kill, repair: r.start}}, close: r.close}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return redisClients(r.address(), subscribe, b, logger)
}

func (r *realRedis) address() string { return net.JoinHostPort("127.0.0.1", r.port) }

func (r *realRedis) start(ctx context.Context) error {
	r.running = exec.Command(r.program, //nolint:gosec,noctx // found by its name; it ends when it is killed
		"--bind", "127.0.0.1", "--port", r.port, "--dir", r.folder, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
	if err := r.running.Start(); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: r.address()})
	return errors.Join(poll(ctx, func() (bool, error) { return client.Ping(ctx).Err() == nil, nil }), client.Close())
}

func (r *realRedis) kill(context.Context) error {
	if err := r.running.Process.Kill(); err != nil {
		return err
	}
	_ = r.running.Wait() // it was killed
	return nil
}

func (r *realRedis) close() error {
	var err error
	if r.running != nil && r.running.Process != nil && r.running.ProcessState == nil {
		err = r.kill(context.Background())
	}
	return errors.Join(err, os.RemoveAll(r.folder))
}
