package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// consumer listens to the broker and writes an invoice for each order. It has an inbox, because
// both daemons send at least once: the old one is stopped in the middle of its work, and what it
// has sent and not noted is sent again.
type consumer struct {
	router     *message.Router
	store      *inboxstore.Store
	ended      chan error
	deliveries atomic.Int64
}

func (a app) startConsumer(ctx context.Context) (*consumer, error) {
	c := &consumer{ended: make(chan error, 1)}
	var err error
	if c.store, err = inboxstore.New(a.tables, inboxstore.Config{}, a.logger); err != nil {
		return nil, err
	}
	inbox, err := middleware.NewInbox(c.store, middleware.InboxConfig{}, a.logger)
	if err != nil {
		return nil, err
	}
	if c.router, err = message.NewRouter(message.RouterConfig{}, a.logger); err != nil {
		return nil, err
	}
	c.router.AddConsumerHandler("invoices", orderPlaced, a.broker, writeInvoice).AddMiddleware(c.count, inbox.Middleware)
	go func() { c.ended <- c.router.Run(context.WithoutCancel(ctx)) }() // ends after the daemons: see close
	select {
	case <-c.router.Running():
		return c, nil
	case err := <-c.ended:
		return nil, err
	}
}

func (c *consumer) close() error { return errors.Join(c.router.Close(), <-c.ended, c.store.Close()) }

// count is a middleware that counts what arrives, before the inbox.
func (c *consumer) count(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		c.deliveries.Add(1)
		return next(msg)
	}
}

// writeInvoice handles an event, in the inbox's transaction.
func writeInvoice(msg *message.Message) error {
	tx, ok := postbox.TxFromContext(msg.Context())
	if !ok {
		return postbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(msg.Context(), "INSERT INTO migration_example_invoices (order_id) VALUES ($1)", string(msg.Payload))
	return err
}
