// Migrate-from-watermill-sql changes an application that has an outbox already, made of
// watermill-sql v3 and Watermill's components/forwarder, over to Postbox while it runs. First the
// daemon is changed and the producers stay, then the producers are. No event is lost on the way,
// and none has its effect twice.
//
// Read it from top to bottom. The old parts are in old.go, the listener is in consumer.go, and
// check.go has the queries that verify the claim.
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
	"time"

	_ "github.com/lib/pq" // driver "postgres"
	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/sources"
)

func main() {
	database := flag.String("database", cmp.Or(os.Getenv("DATABASE_URL"), os.Getenv("TEST_POSTGRES_DSN"),
		"postgres://postgres:postgres@localhost:5432/postgres?sslmode=disable"), "PostgreSQL to use, or $DATABASE_URL")
	flag.Parse()
	if err := run(context.Background(), *database); err != nil {
		fmt.Fprintln(os.Stderr, "migrate-from-watermill-sql:", err)
		os.Exit(1)
	}
}

const (
	// orderPlaced is the topic of the broker, and the event on it is the id of an order.
	orderPlaced = "orders.placed"
	// customerKey is the metadata with which this application has always said whose order it is.
	customerKey = "customer"
	// oldOrders and newOrders are how many are placed by the old and the new producer.
	oldOrders, newOrders = 300, 100
)

// app is what does not change: the database, a broker, and somebody who listens to it. The broker
// is a GoChannel, so that the example needs nothing but PostgreSQL; examples/quickstart tells what
// to mind with it.
type app struct {
	db     *sql.DB
	tables postbox.Database // those of Postbox
	broker *gochannel.GoChannel
	logger watermill.LoggerAdapter
}

func run(ctx context.Context, database string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	db, err := sql.Open("postgres", database)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(10)
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("make tables: %w", err)
	}
	// Step 1 of the adoption: the tables of Postbox, beside the old ones.
	// They have their own prefix, so that the example can share a database with anything.
	own := postbox.Database{DB: db, Dialect: postbox.PostgreSQL, Prefix: "migration_example_"}
	if err := postbox.Migrate(ctx, own); err != nil {
		return err
	}
	a := app{db: db, tables: own, logger: logger, broker: gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)}
	consumer, err := a.startConsumer(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(a.migrate(ctx), consumer.close()); err != nil {
		return err
	}
	fmt.Printf("%d deliveries brought %d events\n", consumer.deliveries.Load(), oldOrders+newOrders)
	return verify(ctx, db)
}

// migrate is the story.
func (a app) migrate(ctx context.Context) error {
	// How it was: producers write envelopes to a table of watermill-sql, and Watermill's forwarder
	// sends them.
	stopOldDaemon, err := a.startOldDaemon(ctx)
	if err != nil {
		return err
	}
	producing, producingCtx := errgroup.WithContext(ctx)
	producing.Go(func() error { return a.placeOrders(producingCtx, oldOrders, a.publishTheOldWay) })
	err = waitForInvoices(ctx, a.db, oldOrders/3)
	if err := errors.Join(err, stopOldDaemon()); err != nil {
		return err
	}
	fmt.Println("the old daemon is stopped, and the old producer goes on")

	// Step 2: Postbox's forwarder takes the place of the old daemon. Its source is the old table,
	// whose rows it moves to the outbox. KeyFrom tells which events must stay in order; without it,
	// that is all of a topic.
	fwd, err := forwarder.New(a.tables, a.broker, forwarder.Config{
		Sources: []forwarder.Source{sources.WatermillSQL(sources.Config{
			Topic: oldTopic, Envelope: true,
			KeyFrom: func(_ string, msg *message.Message) string { return msg.Metadata.Get(customerKey) },
		})},
	}, a.logger)
	if err != nil {
		return err
	}
	running, runningCtx := errgroup.WithContext(ctx)
	running.Go(func() error { return fwd.Run(runningCtx) })
	running.Go(func() error { return errors.Join(a.changeProducers(runningCtx, producing.Wait), fwd.Close()) })
	return running.Wait()
}

// changeProducers replaces the old producer when that has ended.
func (a app) changeProducers(ctx context.Context, oldProducer func() error) error {
	if err := oldProducer(); err != nil {
		return err
	}
	// Events in the outbox do not wait for events in the old table. Where the order matters between
	// the two, as it does here, let the old table run empty before the first new producer starts.
	if err := waitForAllInvoices(ctx, a.db); err != nil {
		return err
	}
	fmt.Printf("the old producer has ended after %d orders; the new one starts\n", oldOrders)

	// Step 3: producers publish to the outbox. There is no envelope, and one publisher serves all
	// transactions.
	outbox, err := forwarder.NewPublisher(a.tables, forwarder.PublisherConfig{
		OrderingKey: func(_ string, msg *message.Message) string { return msg.Metadata.Get(customerKey) },
	}, a.logger)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	publish := func(_ *sql.Tx, event *message.Message) error { return outbox.Publish(orderPlaced, event) }
	if err := a.placeOrders(ctx, newOrders, publish); err != nil {
		return err
	}
	return waitForAllInvoices(ctx, a.db)
}

// placeOrders is the business code, the same before and after: an order and its event in one
// transaction.
func (a app) placeOrders(ctx context.Context, number int, publish func(tx *sql.Tx, event *message.Message) error) error {
	const customers = 10
	pause := time.NewTicker(2 * time.Millisecond) // so that the change falls into the middle of it
	defer pause.Stop()
	for n := range number {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
		err := postbox.InTx(ctx, a.db, func(ctx context.Context, tx *sql.Tx) error {
			id, customer := postbox.NewMessageID(), fmt.Sprintf("customer %d", n%customers)
			if _, err := tx.ExecContext(ctx, "INSERT INTO migration_example_orders (id, customer) VALUES ($1, $2)", id, customer); err != nil {
				return err
			}
			event := message.NewMessageWithContext(ctx, postbox.NewMessageID(), []byte(id))
			event.Metadata.Set(customerKey, customer)
			return publish(tx, event)
		})
		if err != nil {
			return fmt.Errorf("place an order: %w", err)
		}
	}
	return nil
}
