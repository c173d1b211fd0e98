// Postgres-kafka takes orders from PostgreSQL through Kafka to a shipping department, which keeps
// its shipments in PostgreSQL too. Order and event are committed together, and so are shipment and
// the note that the event has been handled. Kafka may deliver an event twice, and is made to, yet
// each order is shipped once, and the orders of a customer in the order in which they were placed.
//
// Read it from top to bottom; check.go has the queries that verify the claim.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
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
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// settings are where things are, and how much to do.
type settings struct {
	database string
	kafka    string
	topic    string
	orders   int
}

func main() {
	s := settings{topic: "postbox.example.orders"}
	flag.StringVar(&s.database, "database", cmp.Or(os.Getenv("DATABASE_URL"), os.Getenv("TEST_POSTGRES_DSN"),
		"postgres://postgres:postgres@localhost:5432/postgres?sslmode=disable"), "PostgreSQL to use, or $DATABASE_URL")
	flag.StringVar(&s.kafka, "kafka", cmp.Or(os.Getenv("KAFKA_BROKERS"), os.Getenv("TEST_KAFKA_BROKERS"),
		"localhost:9092"), "Kafka brokers to use, with commas between them, or $KAFKA_BROKERS")
	flag.IntVar(&s.orders, "orders", 200, "orders to place")
	flag.Parse()
	if err := run(context.Background(), s); err != nil {
		fmt.Fprintln(os.Stderr, "postgres-kafka:", err)
		os.Exit(1)
	}
}

// orderPlaced is the event.
type orderPlaced struct {
	OrderID  string `json:"order_id"`
	Customer string `json:"customer"`
}

func run(ctx context.Context, s settings) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	db, err := sql.Open("postgres", s.database)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(10)
	// The tables have their own prefix, so that the example can share a database with anything.
	database := postbox.Database{DB: db, Dialect: postbox.PostgreSQL, Prefix: "kafka_example_"}
	if err := postbox.Migrate(ctx, database); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("make tables: %w", err)
	}

	// Kafka makes a missing topic with its own defaults, usually one partition: make it first, with
	// twelve. The partition is chosen by the ordering key, so orders of one customer share one.
	brokers := strings.Split(s.kafka, ",")
	subscriber, err := kafka.NewSubscriber(kafkabroker.DefaultSubscriberConfig(brokers, "shipping"), logger)
	if err != nil {
		return err
	}
	if err := subscriber.SubscribeInitialize(s.topic); err != nil {
		return err
	}

	// Into the outbox, a table, goes what placeOrder publishes.
	outbox, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{}, logger)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()

	// From the outbox to Kafka. The forwarder lives in the router; a service of its own would do as
	// well. ListenDSN lets it hear of commits of other processes at once. BatchSize is for this
	// publisher, which sends many messages at the price of one, and those of one key in their
	// order.
	publisher, err := kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(brokers), logger)
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	sent, seen := &sendsSomeTwice{Publisher: publisher}, &deliveries{}
	_, err = forwarder.New(database, sent, forwarder.Config{
		Tuning: postbox.Tuning{ListenDSN: s.database}, Classify: kafkabroker.Classify, BatchSize: 100, Router: router,
	}, logger)
	if err != nil {
		return err
	}

	// From Kafka through the inbox to the handler.
	store, err := inboxstore.New(database, inboxstore.Config{}, logger)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddConsumerHandler("shipping", s.topic, subscriber, ship).AddMiddleware(seen.count, inbox.Middleware)

	// The orders come while the router runs.
	running, runningCtx := errgroup.WithContext(ctx)
	running.Go(func() error { return router.Run(runningCtx) })
	running.Go(func() error {
		err := placeOrders(runningCtx, db, outbox, s)
		if err == nil {
			err = waitUntilShipped(runningCtx, db, sent, seen)
		}
		return errors.Join(err, router.Close())
	})
	if err := running.Wait(); err != nil {
		return err
	}
	fmt.Printf("Kafka got %d messages, of which %d were sent twice, and delivered %d\n", sent.all(), sent.twice(), seen.all())
	return verify(ctx, db)
}

func placeOrders(ctx context.Context, db *sql.DB, outbox message.Publisher, s settings) error {
	const customers = 10
	for n := range s.orders {
		if err := placeOrder(ctx, db, outbox, s.topic, fmt.Sprintf("customer %d", n%customers)); err != nil {
			return fmt.Errorf("place an order: %w", err)
		}
	}
	fmt.Printf("%d orders of %d customers are committed, each with its event\n", s.orders, customers)
	return nil
}

// placeOrder commits an order and its event. Events of one customer keep their order on the whole
// way.
func placeOrder(ctx context.Context, db *sql.DB, outbox message.Publisher, topic, customer string) error {
	return postbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		id := postbox.NewMessageID()
		if _, err := tx.ExecContext(ctx, "INSERT INTO kafka_example_orders (id, customer) VALUES ($1, $2)", id, customer); err != nil {
			return err
		}
		payload, err := json.Marshal(orderPlaced{OrderID: id, Customer: customer})
		if err != nil {
			return err
		}
		event := message.NewMessageWithContext(ctx, postbox.NewMessageID(), payload) // the transaction is in ctx
		event.Metadata.Set(postbox.MetadataOrderingKey, customer)
		return outbox.Publish(topic, event)
	})
}

// ship handles an event in the inbox's transaction.
func ship(msg *message.Message) error {
	tx, ok := postbox.TxFromContext(msg.Context())
	if !ok {
		return postbox.ErrNoTransaction
	}
	var event orderPlaced
	if err := json.Unmarshal(msg.Payload, &event); err != nil {
		return postbox.Permanent(err) // no retry can help, so it becomes a dead letter at once
	}
	_, err := tx.ExecContext(msg.Context(), "INSERT INTO kafka_example_shipments (order_id, customer) VALUES ($1, $2)", event.OrderID, event.Customer)
	return err
}
