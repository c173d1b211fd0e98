// Postgres-rabbitmq takes orders from PostgreSQL through RabbitMQ to a shipping department, which
// keeps its shipments in PostgreSQL too. Order and event are committed together, and so are
// shipment and the note that the event has been handled. RabbitMQ may deliver an event twice, and
// is made to, yet each order is shipped once, and the orders of a customer in the order in which
// they were placed.
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
	"time"

	_ "github.com/lib/pq" // driver "postgres"
	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// settings are where things are, and how much to do.
type settings struct {
	database string
	rabbitmq string
	topic    string
	orders   int
}

func main() {
	s := settings{topic: "postbox.example.orders"}
	flag.StringVar(&s.database, "database", cmp.Or(os.Getenv("DATABASE_URL"), os.Getenv("TEST_POSTGRES_DSN"),
		"postgres://postgres:postgres@localhost:5432/postgres?sslmode=disable"), "PostgreSQL to use, or $DATABASE_URL")
	flag.StringVar(&s.rabbitmq, "rabbitmq", cmp.Or(os.Getenv("AMQP_URI"), os.Getenv("TEST_AMQP_URI"),
		"amqp://guest:guest@localhost:5672/"), "RabbitMQ to use, or $AMQP_URI")
	flag.IntVar(&s.orders, "orders", 200, "orders to place")
	flag.Parse()
	if err := run(context.Background(), s); err != nil {
		fmt.Fprintln(os.Stderr, "postgres-rabbitmq:", err)
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
	database := postbox.Database{DB: db, Dialect: postbox.PostgreSQL, Prefix: "rabbitmq_example_"}
	if err := postbox.Migrate(ctx, database); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("make tables: %w", err)
	}

	// A message must reach a queue, so the queue comes first.
	listening := amqpbroker.DefaultSubscriberConfig(s.rabbitmq, "shipping")
	if err := amqpbroker.EnsureTopology(listening, s.topic); err != nil {
		return err
	}

	// Into the outbox, a table, goes what placeOrder publishes.
	outbox, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{}, logger)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()

	// From the outbox to RabbitMQ. The forwarder lives in the router; a service of its own would do
	// as well. ListenDSN lets it hear of commits of other processes at once. RabbitMQ confirms many
	// messages at the price of one.
	publisher, err := amqpbroker.NewPublisher(amqpbroker.DefaultPublisherConfig(s.rabbitmq), logger)
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
		Tuning: postbox.Tuning{ListenDSN: s.database}, Classify: amqpbroker.Classify, BatchSize: 100, Router: router,
	}, logger)
	if err != nil {
		return err
	}

	// From RabbitMQ through the inbox to the handler.
	subscriber, err := amqp.NewSubscriber(listening, logger)
	if err != nil {
		return err
	}
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
	fmt.Printf("RabbitMQ got %d messages, of which %d were sent twice, and delivered %d\n", sent.all(), sent.twice(), seen.all())
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
		if _, err := tx.ExecContext(ctx, "INSERT INTO rabbitmq_example_orders (id, customer) VALUES ($1, $2)", id, customer); err != nil {
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
	_, err := tx.ExecContext(msg.Context(), "INSERT INTO rabbitmq_example_shipments (order_id, customer) VALUES ($1, $2)", event.OrderID, event.Customer)
	return err
}
