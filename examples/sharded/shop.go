package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/router"
)

const (
	accounts   = 24
	partitions = 6
	workers    = 4
	maxCents   = 100
	// between is the pause of a worker between two orders, troubled that after an error.
	between, troubled = 5 * time.Millisecond, 200 * time.Millisecond
	// stop is the line on which a shop takes no more orders. At the end of its input it ends.
	stop = "stop"
)

// accountName is that of an account of this run.
func (s settings) accountName(n int) string { return fmt.Sprintf("%s/%02d", s.topic, n) }

// newLogger leaves out warnings: servers are killed here.
func newLogger() watermill.LoggerAdapter {
	return watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
}

func (s settings) brokers() []string { return strings.Split(s.kafka, ",") }

// subscribe makes a member of a consumer group.
func (s settings) subscribe(group string, logger watermill.LoggerAdapter) (message.Subscriber, error) {
	config := kafkabroker.DefaultSubscriberConfig(s.brokers(), group)
	config.InitializeTopicDetails.NumPartitions = partitions
	// Kafka misses a member that was killed after this time: the least that its servers allow.
	config.OverwriteSaramaConfig.Consumer.Group.Session.Timeout = 6 * time.Second
	config.OverwriteSaramaConfig.Consumer.Group.Heartbeat.Interval = time.Second
	subscriber, err := kafka.NewSubscriber(config, logger)
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(s.topic); err != nil {
		return nil, errors.Join(err, subscriber.Close())
	}
	return subscriber, nil
}

// runShop is the whole life of a process that takes orders for all servers, publishes what is in
// their outboxes, and takes in accounts that move.
func runShop(ctx context.Context, s settings, in io.Reader) (err error) {
	logger := newLogger()
	all, err := openShards(ctx, s, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	publisher, err := kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(s.brokers()), logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, publisher.Close()) }()
	running, ctx := errgroup.WithContext(ctx)
	var routers []*router.Router
	for n := range all {
		r, err := s.serve(all[n], n, publisher, logger)
		if err != nil {
			return err
		}
		routers = append(routers, r)
		running.Go(func() error { return r.Run(context.WithoutCancel(ctx)) })
	}
	taking, stopTaking := context.WithCancel(ctx)
	for range workers {
		running.Go(func() error { return s.takeOrders(taking, all) })
	}
	running.Go(func() error {
		obey(ctx, in, stopTaking)
		for _, r := range routers {
			err = errors.Join(err, r.Close())
		}
		return err
	})
	return running.Wait()
}

// serve makes what runs for one server: a forwarder, and an inbox for accounts that arrive. Each
// server is a consumer group of its own.
func (s settings) serve(one *shard, n int, publisher message.Publisher, logger watermill.LoggerAdapter) (*router.Router, error) {
	store, err := inboxstore.New(one.database, inboxstore.Config{}, logger)
	if err != nil {
		return nil, err
	}
	r, err := router.New(nil, router.Config{Store: store}, logger)
	if err != nil {
		return nil, err
	}
	_, err = r.AddForwarder(one.database, publisher, forwarder.Config{
		Classify: kafkabroker.Classify, BatchSize: 100, Tuning: postbox.Tuning{ListenDSN: one.url},
	})
	if err != nil {
		return nil, err
	}
	group := "sharded-server-" + strconv.Itoa(n)
	subscriber, err := s.subscribe(group, logger)
	if err != nil {
		return nil, err
	}
	r.Router().AddMiddleware(onlyMovesTo(n)) // outside the inbox, which need not remember the others
	_, err = r.AddInboxHandler(group, s.topic, subscriber, "", arrive, middleware.InboxConfig{Consumer: "accounts"})
	return r, err
}

// onlyMovesTo acks events that do not concern a server.
func onlyMovesTo(n int) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if msg.Metadata.Get(movedTo) != strconv.Itoa(n) {
				return nil, nil
			}
			return next(msg)
		}
	}
}

// takeOrders takes orders for any account until ctx ends. Servers may be away.
func (s settings) takeOrders(ctx context.Context, all shards) error {
	for ctx.Err() == nil {
		account := s.accountName(rand.IntN(accounts)) //nolint:gosec // any dice will do
		cents := 1 + rand.Int64N(maxCents)            //nolint:gosec // any dice will do
		err := all.follow(ctx, account, s.homes, func(at *shard) error { return at.order(ctx, account, cents) })
		pause := between
		if err != nil {
			pause = troubled // a client would try again
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// obey calls stopTaking at the line of that name, and returns at the end of the input.
func obey(ctx context.Context, in io.Reader, stopTaking func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			if lines.Text() == stop {
				stopTaking()
			}
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	stopTaking()
}
