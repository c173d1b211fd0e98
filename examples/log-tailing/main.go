// Log-tailing takes orders from PostgreSQL through its log and Kafka to a shipping department.
// Forwarders read the log instead of waiting for a poll. Meanwhile connections are cut, the
// forwarder that reads the log is replaced, and the broker refuses one event again and again. Each
// order is shipped once, and the orders of a customer in the order in which they were placed.
//
// Read it from top to bottom; trouble.go makes the trouble, and check.go has the queries that
// verify the claim.
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
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// settings are where things are, and how much to do.
type settings struct {
	database string
	kafka    string
	topic    string
	orders   int
}

func main() {
	s := settings{topic: "postbox.example.tailed"}
	flag.StringVar(&s.database, "database", cmp.Or(os.Getenv("DATABASE_URL"), os.Getenv("TEST_POSTGRES_LOG_DSN"),
		"postgres://postgres:postgres@localhost:5432/postgres?sslmode=disable"), "PostgreSQL to use, with wal_level=logical, or $DATABASE_URL")
	flag.StringVar(&s.kafka, "kafka", cmp.Or(os.Getenv("KAFKA_BROKERS"), os.Getenv("TEST_KAFKA_BROKERS"),
		"localhost:9092"), "Kafka brokers to use, with commas between them, or $KAFKA_BROKERS")
	flag.IntVar(&s.orders, "orders", 400, "orders to place")
	flag.Parse()
	if err := run(context.Background(), s); err != nil {
		fmt.Fprintln(os.Stderr, "log-tailing:", err)
		os.Exit(1)
	}
}

// orderPlaced is the event.
type orderPlaced struct {
	OrderID  string `json:"order_id"`
	Customer string `json:"customer"`
}

// world is what the parts of the example share.
type world struct {
	settings

	db       *sql.DB
	database postbox.Database
	taken    *taken
	logger   watermill.LoggerAdapter
}

func run(ctx context.Context, s settings) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	db, err := sql.Open("postgres", s.database)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(10)
	w := &world{settings: s, db: db, taken: &taken{}, logger: watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1})))}
	// The tables have their own prefix, so that the example can share a database with anything.
	w.database = postbox.Database{DB: db, Dialect: postbox.PostgreSQL, Prefix: "tail_example_", Metrics: w.taken}
	if err := postbox.Migrate(ctx, w.database); err != nil {
		return err
	}
	// The publication of the log, made once by the owner of the tables. It says what the server
	// lacks.
	if err := pgtail.Setup(ctx, w.database, publication); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("make tables: %w", err)
	}
	router, err := w.shipping()
	if err != nil {
		return err
	}

	running, runningCtx := errgroup.WithContext(ctx)
	forwarding, enough := context.WithCancel(runningCtx)
	running.Go(func() error { return router.Run(runningCtx) })
	running.Go(func() error { return w.forwardInTrouble(forwarding) })
	running.Go(func() error {
		err := w.placeOrders(runningCtx)
		if err == nil {
			err = w.waitUntilShipped(runningCtx)
		}
		enough()
		return errors.Join(err, router.Close())
	})
	if err := running.Wait(); err != nil {
		return err
	}
	return w.verify(ctx)
}

const publication = "tail_example"

// forward runs a forwarder, as a process of its own would, until ctx ends.
func (w *world) forward(ctx context.Context) error {
	publisher, err := kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(strings.Split(w.kafka, ",")), w.logger)
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	// One process at a time reads the log; the other one stands by. Without the log, both would
	// poll.
	follower, err := pgtail.New(pgtail.Config{DSN: w.settings.database, Publication: publication})
	if err != nil {
		return err
	}
	f, err := forwarder.New(w.database, refusesSome{publisher}, forwarder.Config{
		Tail: follower, Classify: kafkabroker.Classify, BatchSize: 100,
		Retry: postbox.RetryProfile{Base: 50 * time.Millisecond, Cap: 200 * time.Millisecond},
	}, w.logger)
	if err != nil {
		return err
	}
	return f.Run(ctx)
}

// shipping returns a router that handles the messages from Kafka with an inbox.
func (w *world) shipping() (*message.Router, error) {
	subscriber, err := kafka.NewSubscriber(kafkabroker.DefaultSubscriberConfig(strings.Split(w.kafka, ","), "shipping"), w.logger)
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(w.topic); err != nil {
		return nil, err
	}
	store, err := inboxstore.New(w.database, inboxstore.Config{}, w.logger)
	if err != nil {
		return nil, err
	}
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{}, w.logger)
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, w.logger)
	if err != nil {
		return nil, err
	}
	router.AddConsumerHandler("shipping", w.topic, subscriber, ship).AddMiddleware(inbox.Middleware)
	return router, nil
}

func (w *world) placeOrders(ctx context.Context) error {
	outbox, err := forwarder.NewPublisher(w.database, forwarder.PublisherConfig{}, w.logger)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	const customers = 10
	for n := range w.orders {
		if err := w.placeOrder(ctx, outbox, fmt.Sprintf("customer %d", n%customers)); err != nil {
			return fmt.Errorf("place an order: %w", err)
		}
		<-pace.C
	}
	fmt.Printf("%d orders of %d customers are committed, each with its event\n", w.orders, customers)
	return nil
}

// placeOrder commits an order and its event.
func (w *world) placeOrder(ctx context.Context, outbox message.Publisher, customer string) error {
	return postbox.InTx(ctx, w.db, func(ctx context.Context, tx *sql.Tx) error {
		id := postbox.NewMessageID()
		if _, err := tx.ExecContext(ctx, "INSERT INTO tail_example_orders (id, customer) VALUES ($1, $2)", id, customer); err != nil {
			return err
		}
		payload, err := json.Marshal(orderPlaced{OrderID: id, Customer: customer})
		if err != nil {
			return err
		}
		event := message.NewMessageWithContext(ctx, postbox.NewMessageID(), payload) // the transaction is in ctx
		event.Metadata.Set(postbox.MetadataOrderingKey, customer)
		return outbox.Publish(w.topic, event)
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
		return postbox.Permanent(err)
	}
	_, err := tx.ExecContext(msg.Context(), "INSERT INTO tail_example_shipments (order_id, customer) VALUES ($1, $2)", event.OrderID, event.Customer)
	return err
}
