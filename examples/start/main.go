// Start is the program of the README: a service that takes orders and ships them, on PostgreSQL and
// RabbitMQ.
//
//	DATABASE_URL=postgres://… AMQP_URI=amqp://… go run -C examples ./start
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/router"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("DATABASE_URL"), os.Getenv("AMQP_URI"), "orders")
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start:", err)
		os.Exit(1)
	}
}

// run works until ctx ends.
func run(ctx context.Context, databaseURL, amqpURI, topic string) error {
	logger := watermill.NewSlogLogger(slog.Default())
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	database := postbox.Database{DB: db, Dialect: postbox.PostgreSQL}
	if err := errors.Join(postbox.Migrate(ctx, database), createTables(ctx, db)); err != nil {
		return err
	}

	// A message must reach a queue, so the queue comes first.
	consumer := amqpbroker.DefaultSubscriberConfig(amqpURI, "shipping")
	if err := amqpbroker.EnsureTopology(consumer, topic); err != nil {
		return err
	}
	subscriber, err1 := amqp.NewSubscriber(consumer, logger)
	publisher, err2 := amqpbroker.NewPublisher(amqpbroker.DefaultPublisherConfig(amqpURI), logger)
	outbox, err3 := forwarder.NewPublisher(database, forwarder.PublisherConfig{}, logger)
	store, err4 := inboxstore.New(database, inboxstore.Config{}, logger)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}

	r, err := router.New(nil, router.Config{Store: store, Outbox: outbox}, logger)
	if err != nil {
		return err
	}
	_, err1 = r.AddForwarder(database, publisher, forwarder.Config{Classify: amqpbroker.Classify, BatchSize: 100})
	_, err2 = r.AddInboxHandler("shipping", topic, subscriber, "", ship, middleware.InboxConfig{})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	go func() {
		<-r.Running()
		if err := placeOrder(ctx, db, outbox, topic, "order 1"); err != nil {
			logger.Error("The order was not placed", err, nil)
		}
	}()
	// Run blocks: place orders in other goroutines, at once or after <-r.Running().
	return errors.Join(r.Run(ctx), publisher.Close(), outbox.Close(), store.Close())
}

// placeOrder stores an order and its event in one commit.
func placeOrder(ctx context.Context, db *sql.DB, outbox message.Publisher, topic, order string) error {
	return postbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ($1)", order); err != nil {
			return err
		}
		event := message.NewMessageWithContext(ctx, postbox.NewMessageID(), []byte(order))
		event.Metadata.Set(postbox.MetadataOrderingKey, order) // events of one key stay in order
		return outbox.Publish(topic, event)
	})
}

// ship has its effect once, however often the event is delivered.
func ship(msg *message.Message) ([]*message.Message, error) {
	tx, found := postbox.TxFromContext(msg.Context()) // commits together with the claim of the event
	if !found {
		return nil, postbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(msg.Context(), "INSERT INTO shipments VALUES ($1)", string(msg.Payload))
	return nil, err
}

func createTables(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id TEXT); CREATE TABLE IF NOT EXISTS shipments (id TEXT)")
	return err
}
