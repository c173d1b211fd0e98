package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

// prefix of the tables, so that the example can share a database with anything.
const prefix = "tracing_"

const tables = `CREATE TABLE IF NOT EXISTS tracing_orders (id VARCHAR(36) PRIMARY KEY)`

const (
	ordersTopic   = "orders"
	paymentsTopic = "payments"
	payQueue      = "pay"
)

// shop is a service with an outbox, two inboxes and a queue.
type shop struct {
	db     *sql.DB
	outbox message.Publisher
	store  *inboxstore.Store
	router *router.Router
	tracer trace.Tracer

	told  chan struct{} // gets a value when the customer knows
	ended chan error
}

func newShop(p *pipes.Pipes, tracing *oteltracing.Tracing, tracer trace.Tracer) (*shop, error) {
	s := &shop{db: p.DB, tracer: tracer, told: make(chan struct{}, 1), ended: make(chan error, 1)}
	own := p.Tables(prefix)
	publisher, err := forwarder.NewPublisher(own, forwarder.PublisherConfig{}, p.Logger)
	if err != nil {
		return nil, err
	}
	// A span for each call that writes to the outbox, and one for each call of the forwarder to the
	// broker.
	if s.outbox, err = tracing.DecoratePublisher(publisher); err != nil {
		return nil, err
	}
	broker, err := tracing.DecoratePublisher(p.Publisher)
	if err != nil {
		return nil, err
	}
	if s.store, err = inboxstore.New(own, inboxstore.Config{}, p.Logger); err != nil {
		return nil, err
	}
	if s.router, err = router.New(nil, router.Config{Store: s.store, Outbox: s.outbox}, p.Logger); err != nil {
		return nil, err
	}
	// A span each time that a handler runs. It comes before the handlers.
	s.router.Router().AddMiddleware(tracing.Middleware)
	_, err = s.router.AddForwarder(own, broker, forwarder.Config{Classify: p.Classify, BatchSize: p.BatchSize})
	if err != nil {
		return nil, err
	}
	return s, s.addHandlers(p)
}

func (s *shop) addHandlers(p *pipes.Pipes) error {
	orders, err := p.NewSubscriber("tracing-pay", ordersTopic)
	if err != nil {
		return err
	}
	payments, err := p.NewSubscriber("tracing-tell", paymentsTopic)
	if err != nil {
		return err
	}
	// An order is stored in a queue, and paid from there. What pay returns goes to the outbox.
	_, err = s.router.AddQueueHandler(payQueue, ordersTopic, orders, paymentsTopic, s.pay(), router.QueueConfig{Worker: queue.Config{
		Retry: postbox.RetryProfile{Base: 20 * time.Millisecond, Cap: 20 * time.Millisecond},
	}})
	if err != nil {
		return err
	}
	_, err = s.router.AddInboxHandler("tell", paymentsTopic, payments, "", func(*message.Message) ([]*message.Message, error) {
		select {
		case s.told <- struct{}{}:
		default: // it runs again if the commit fails
		}
		return nil, nil
	}, middleware.InboxConfig{})
	return err
}

// ServeHTTP writes an order. In a real service the span of the request is made by otelhttp.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, span := s.tracer.Start(r.Context(), r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	err := postbox.InTx(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
		id := postbox.NewMessageID()
		if _, err := tx.ExecContext(ctx, `INSERT INTO tracing_orders (id) VALUES ($1)`, id); err != nil {
			return err
		}
		return s.outbox.Publish(ordersTopic, message.NewMessageWithContext(ctx, id, []byte("one book")))
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

var errBusy = errors.New("the bank is busy")

// pay returns a handler that asks a bank, which is busy at first.
func (s *shop) pay() message.HandlerFunc {
	asked := 0
	return func(msg *message.Message) ([]*message.Message, error) {
		_, span := s.tracer.Start(msg.Context(), "ask the bank", trace.WithSpanKind(trace.SpanKindClient))
		defer span.End()
		if asked++; asked == 1 {
			return nil, errBusy
		}
		return []*message.Message{message.NewMessage(postbox.NewMessageID(), []byte("paid"))}, nil
	}
}

// start returns when the shop has subscribed to everything.
func (s *shop) start(ctx context.Context) error {
	go func() { s.ended <- s.router.Run(context.WithoutCancel(ctx)) }() // close ends it
	select {
	case <-s.router.Running():
		return nil
	case err := <-s.ended:
		s.ended <- nil // for close
		return err
	}
}

// sell sends a request, and waits until the order is paid and the customer knows.
func (s *shop) sell(ctx context.Context) error {
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", http.NoBody))
	if answer.Code != http.StatusCreated {
		return fmt.Errorf("the order was answered with status %d: %s", answer.Code, answer.Body)
	}
	select {
	case <-s.told:
		return nil
	case <-ctx.Done():
		return errors.New("the order has not been paid in time")
	}
}

// close lets running handlers end, and with them their spans.
func (s *shop) close() error {
	return errors.Join(s.router.Close(), <-s.ended, s.store.Close(), s.outbox.Close())
}
