// Kafka-partition works on many messages of one partition at a time, in the order of their keys.
//
// A subscriber of Watermill hands out one message of a partition at a time, since Kafka acks up to
// an offset. Here a message is acked when it is stored in a queue, and the queue lets keys run side
// by side, in two processes, although only one of them has the partition. Messages come twice and
// handlers fail, and a key that fails holds up no other one.
//
// Read it from top to bottom; check.go has the messages, and the queries that verify the claim.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	_ "github.com/lib/pq" // driver "postgres"
	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

// settings are where things are, and how much to do.
type settings struct {
	database, kafka, topic string
	messages, keys         int
}

func main() {
	s := settings{topic: "postbox.example.partition"}
	flag.StringVar(&s.database, "database", cmp.Or(os.Getenv("DATABASE_URL"), os.Getenv("TEST_POSTGRES_DSN"),
		"postgres://postgres:postgres@localhost:5432/postgres?sslmode=disable"), "PostgreSQL to use, or $DATABASE_URL")
	flag.StringVar(&s.kafka, "kafka", cmp.Or(os.Getenv("KAFKA_BROKERS"), os.Getenv("TEST_KAFKA_BROKERS"),
		"localhost:9092"), "Kafka brokers to use, with commas between them, or $KAFKA_BROKERS")
	flag.IntVar(&s.messages, "messages", 500, "messages to send")
	flag.IntVar(&s.keys, "keys", 50, "keys that they have")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "kafka-partition:", err)
		os.Exit(1)
	}
}

// run returns how many handlers ran at a time.
func run(ctx context.Context, s settings) (most int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1})))
	db, err := sql.Open("postgres", s.database)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(connections)
	// The tables have their own prefix, so that the example can share a database with anything.
	database := postbox.Database{DB: db, Dialect: postbox.PostgreSQL, Prefix: "partition_example_"}
	if err := postbox.Migrate(ctx, database); err != nil {
		return 0, err
	}
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return 0, fmt.Errorf("make tables: %w", err)
	}
	work := &work{db: db}
	running, runningCtx := errgroup.WithContext(ctx)
	var processes []*router.Router
	for range 2 {
		store, err := inboxstore.New(database, inboxstore.Config{}, logger)
		if err != nil {
			return 0, err
		}
		defer func() { _ = store.Close() }()
		r, err := process(store, s, work, logger)
		if err != nil {
			return 0, err
		}
		processes = append(processes, r)
		running.Go(func() error { return r.Run(context.WithoutCancel(runningCtx)) })
	}
	running.Go(func() error {
		err := send(runningCtx, s)
		start := time.Now()
		if err == nil {
			err = work.wait(runningCtx)
		}
		work.took = time.Since(start)
		for _, r := range processes {
			err = errors.Join(err, r.Close())
		}
		return err
	})
	if err := running.Wait(); err != nil {
		return 0, err
	}
	return work.most.Load(), work.verify(ctx, s)
}

// process is what each process of a service does. Here both are in one, to keep it simple.
func process(store *inboxstore.Store, s settings, work *work, logger watermill.LoggerAdapter) (*router.Router, error) {
	config := kafkabroker.DefaultSubscriberConfig(strings.Split(s.kafka, ","), "partition-example")
	config.InitializeTopicDetails.NumPartitions = 1
	subscriber, err := kafka.NewSubscriber(config, logger)
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(s.topic); err != nil {
		return nil, err
	}
	r, err := router.New(nil, router.Config{Store: store}, logger)
	if err != nil {
		return nil, err
	}
	_, err = r.AddQueueHandler("slow-work", s.topic, subscriber, "", work.handle, router.QueueConfig{
		Worker: queue.Config{Transactional: true, Concurrency: concurrency, Retry: postbox.RetryProfile{Base: 50 * time.Millisecond}},
	})
	return r, err
}

const (
	concurrency = 16 // keys at a time, in each process
	connections = 2*concurrency + 8
	handlerTime = 20 * time.Millisecond
)

// handle does slow work, in the transaction of the queue. The record's key is the ordering key.
func (w *work) handle(msg *message.Message) ([]*message.Message, error) {
	defer w.begin()()
	tx, ok := postbox.TxFromContext(msg.Context())
	if !ok {
		return nil, postbox.ErrNoTransaction
	}
	select {
	case <-time.After(handlerTime):
	case <-msg.Context().Done():
		return nil, msg.Context().Err()
	}
	_, err := tx.ExecContext(msg.Context(), `INSERT INTO partition_example_effects (key, payload) VALUES ($1, $2)`,
		msg.Metadata.Get(postbox.MetadataOrderingKey), string(msg.Payload))
	if err != nil {
		return nil, err
	}
	return nil, w.strike() // fails at times, after it has written
}
