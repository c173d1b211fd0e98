package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// consumer listens to the broker and writes an invoice for each order. It has an inbox, because the
// relay and the forwarder both publish at least once: what the relay has published and not marked
// is published again.
type consumer struct {
	router  *message.Router
	store   *inboxstore.Store
	running *worker
}

func (s *shop) startConsumer(ctx context.Context) (*consumer, error) {
	c := &consumer{}
	var err error
	if c.store, err = inboxstore.New(s.tables, inboxstore.Config{}, s.logger); err != nil {
		return nil, err
	}
	inbox, err := middleware.NewInbox(c.store, middleware.InboxConfig{}, s.logger)
	if err != nil {
		return nil, err
	}
	if c.router, err = message.NewRouter(message.RouterConfig{}, s.logger); err != nil {
		return nil, err
	}
	c.router.AddConsumerHandler("invoices", s.topic, s.subscriber, s.writeInvoice).AddMiddleware(s.countDelivery, inbox.Middleware)
	c.running = start(context.WithoutCancel(ctx), c.router.Run) // ends after the forwarder: see close
	select {
	case <-c.router.Running():
		return c, nil
	case err := <-c.running.ended:
		return nil, err
	}
}

func (c *consumer) close() error {
	return errors.Join(c.router.Close(), c.running.stop(), c.store.Close())
}

// countDelivery is a middleware that counts what arrives, before the inbox.
func (s *shop) countDelivery(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		defer s.deliveries.Add(1)
		return next(msg)
	}
}

// writeInvoice handles an event, in the inbox's transaction.
func (s *shop) writeInvoice(msg *message.Message) error {
	tx, ok := postbox.TxFromContext(msg.Context())
	if !ok {
		return postbox.ErrNoTransaction
	}
	customer, number, _ := strings.Cut(string(msg.Payload), "/")
	order, err := strconv.Atoi(number)
	if err != nil {
		return postbox.Permanent(fmt.Errorf("read event %q: %w", msg.Payload, err))
	}
	_, err = tx.ExecContext(msg.Context(), s.table.bind("INSERT INTO from_table_invoices (customer, order_number) VALUES (?, ?)"), customer, order)
	return err
}
