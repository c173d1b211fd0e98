// Quickstart is a small shop: a module that takes orders and a module that takes payments, in one
// process with one SQLite file. They talk by events, through an outbox and an inbox, so that
// killing the process at any instant neither loses a payment nor takes one twice.
//
// This file is the shop; read it from top to bottom. database.go has its tables and customers.go
// its traffic. demo.go kills it again and again, sabotage.go makes handlers fail and events come
// twice, and count.go looks at the database afterwards.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	if isShop() { // this process is one of those that get killed
		return shop(ctx)
	}
	_, err := runDemo(ctx, os.Stdout, plan{Orders: 2400, Kills: 5, OneIn: 20})
	return err
}

// The topics of the bus.
const (
	orderPlaced     = "orders.placed"
	paymentReceived = "payments.received"
)

// orderEvent is what the events on both topics say.
type orderEvent struct {
	OrderID  int64  `json:"order_id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

// placeOrder is the orders module: an order and its event are committed together, or not at all.
func placeOrder(ctx context.Context, db *sql.DB, outbox message.Publisher, customer string, cents int64) error {
	return postbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		order := orderEvent{Customer: customer, Cents: cents}
		err := tx.QueryRowContext(ctx, "INSERT INTO orders (customer, cents) VALUES (?, ?) RETURNING id", customer, cents).
			Scan(&order.OrderID)
		if err != nil {
			return err
		}
		event, err := newEvent(ctx, order)
		if err != nil {
			return err
		}
		return outbox.Publish(orderPlaced, event) // finds the transaction in the message's context
	})
}

// takePayment is the payments module: it charges the customer, and returns the event that tells of
// it. All that it writes is committed together with the inbox's note that the event has been
// handled.
func takePayment(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	tx, order, err := received(msg)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO payments (order_id, customer, cents) VALUES (?, ?, ?)", order.OrderID, order.Customer, order.Cents)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, "UPDATE accounts SET charged = charged + ? WHERE customer = ?", order.Cents, order.Customer)
	if err != nil {
		return nil, err
	}
	event, err := newEvent(ctx, order)
	return []*message.Message{event}, err
}

// markPaid is the orders module again: it hears of the payment.
func markPaid(msg *message.Message) error {
	tx, order, err := received(msg)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(msg.Context(), "UPDATE orders SET paid = paid + ? WHERE id = ?", order.Cents, order.OrderID)
	return err
}

// received returns the transaction that the inbox has opened for the handler, and what the event
// says.
func received(msg *message.Message) (tx *sql.Tx, order orderEvent, err error) {
	tx, ok := postbox.TxFromContext(msg.Context())
	if !ok {
		return nil, order, postbox.ErrNoTransaction
	}
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return nil, order, postbox.Permanent(err) // no retry can help, so it becomes a dead letter at once
	}
	return tx, order, nil
}

// newEvent returns a message that carries the transaction of ctx. Events of one customer stay in
// their order.
func newEvent(ctx context.Context, order orderEvent) (*message.Message, error) {
	payload, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	msg := message.NewMessageWithContext(ctx, postbox.NewMessageID(), payload)
	msg.Metadata.Set(postbox.MetadataOrderingKey, order.Customer)
	return msg, nil
}

// runShop wires the modules, and returns when as many orders as planned are placed and all events
// are handled.
func runShop(ctx context.Context, db *sql.DB, p plan, logger watermill.LoggerAdapter) error {
	// Modules publish to the outbox, which is a table, in the transaction of the change that the
	// event tells of.
	outbox, err := forwarder.NewPublisher(postbox.Database{DB: db, Dialect: postbox.SQLite}, forwarder.PublisherConfig{}, logger)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()

	// The forwarder takes events from the outbox to the bus. This bus keeps nothing, so its Publish
	// must not return before the subscribers have acked: then a crash leaves the event in the
	// outbox, to be sent again. The lease is how long the next process waits after a crash; the
	// usual 15 seconds are long for a demo.
	bus := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)
	sabotage := saboteur{db: db, oneIn: p.OneIn}
	fwd, err := forwarder.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, sabotage.sendSomeTwice(bus), forwarder.Config{Tuning: postbox.Tuning{Lease: time.Second}}, logger)
	if err != nil {
		return err
	}

	// The inbox runs a handler in a transaction, together with a note that the event has been
	// handled and with the events that the handler returns. Where that note is found, the handler
	// does not run.
	store, err := inboxstore.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, inboxstore.Config{}, logger)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Outbox: outbox, Retry: postbox.RetryProfile{Base: time.Millisecond, Cap: 10 * time.Millisecond},
	}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	payments := router.AddHandler("payments", orderPlaced, bus, paymentReceived, forwarder.KeepOpen(outbox), takePayment)
	orders := router.AddConsumerHandler("orders", paymentReceived, bus, markPaid)
	for _, module := range []*message.Handler{payments, orders} {
		module.AddMiddleware(sabotage.noteDelivery, inbox.Middleware, sabotage.failSometimes)
	}

	// This bus forgets an event that finds no subscriber. So the forwarder starts when the
	// subscriptions are there, and ends before they do; that is also why the router does not hear
	// of the end of ctx.
	routerEnded := make(chan error, 1)
	go func() { routerEnded <- router.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-router.Running():
	case err := <-routerEnded:
		return err
	}
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return fwd.Run(ctx) })
	running.Go(func() error { return errors.Join(serveCustomers(ctx, db, outbox, p.Orders), fwd.Close()) })
	return errors.Join(running.Wait(), router.Close(), <-routerEnded)
}
