package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

// prefix of the tables, so that the example can share a database with anything.
const prefix = "observability_"

const (
	orders  = "orders"
	letters = "letters" // the queue of thank-you letters
)

// pace is the time from one order to the next.
const pace = 50 * time.Millisecond

// customers order in turn. Each is an ordering key.
const customers = 20

// shop is a service with an outbox, an inbox, a queue and metrics.
type shop struct {
	db     *sql.DB
	broker *breakable
	outbox message.Publisher
	store  *inboxstore.Store
	router *router.Router
	ended  chan error
	server *http.Server
	listen net.Listener

	sold, shipped atomic.Int64
}

func newShop(p *pipes.Pipes) (*shop, error) {
	s := &shop{db: p.DB, broker: &breakable{Publisher: p.Publisher}, ended: make(chan error, 1)}
	own := p.Tables(prefix)
	// These lines make the metrics. The recorder comes before everything that reports to it.
	recorder, err := prommetrics.New(own, prommetrics.Config{Timeout: time.Second})
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(recorder); err != nil {
		return nil, err
	}
	own.Metrics = recorder
	s.server = &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: time.Second}

	if s.outbox, err = forwarder.NewPublisher(own, forwarder.PublisherConfig{}, p.Logger); err != nil {
		return nil, err
	}
	if s.store, err = inboxstore.New(own, inboxstore.Config{}, p.Logger); err != nil {
		return nil, err
	}
	if s.router, err = router.New(nil, router.Config{Store: s.store, Outbox: s.outbox, OtherQueues: []string{letters}}, p.Logger); err != nil {
		return nil, err
	}
	_, err = s.router.AddForwarder(own, s.broker, forwarder.Config{
		Classify: p.Classify, BatchSize: p.BatchSize, Tuning: postbox.Tuning{ProbeMax: time.Second}, // tries the broker each second while it is down
	})
	if err != nil {
		return nil, err
	}
	return s, s.addHandlers(p)
}

// addHandlers ships each order, and stores it in the queue of letters.
func (s *shop) addHandlers(p *pipes.Pipes) error {
	toShip, err := p.NewSubscriber("observability-ship", orders)
	if err != nil {
		return err
	}
	toThank, err := p.NewSubscriber("observability-thank", orders)
	if err != nil {
		return err
	}
	_, err = s.router.AddInboxHandler("ship", orders, toShip, "", func(msg *message.Message) ([]*message.Message, error) {
		postbox.AfterCommit(msg.Context(), func() { s.shipped.Add(1) })
		return nil, nil
	}, middleware.InboxConfig{})
	if err != nil {
		return err
	}
	return s.router.AddDeferral("thank", orders, toThank, letters, middleware.DeferConfig{})
}

// start returns when the shop has subscribed to everything, and its metrics can be scraped.
func (s *shop) start(ctx context.Context) (err error) {
	if s.listen, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	go func() { _ = s.server.Serve(s.listen) }()                        // close ends it
	go func() { s.ended <- s.router.Run(context.WithoutCancel(ctx)) }() // close ends it
	select {
	case <-s.router.Running():
		return nil
	case err := <-s.ended:
		s.ended <- nil // for close
		return err
	}
}

func (s *shop) metricsAddress() string { return s.listen.Addr().String() }

// startWorker handles the queue of letters until it is closed.
func (s *shop) startWorker(ctx context.Context) (*queue.Subscriber, error) {
	worker, err := queue.NewSubscriber(s.store, queue.Config{}, nil)
	if err != nil {
		return nil, err
	}
	toWrite, err := worker.Subscribe(context.WithoutCancel(ctx), letters)
	if err != nil {
		return nil, err
	}
	go func() {
		for letter := range toWrite {
			letter.Ack() // it has been written
		}
	}()
	return worker, nil
}

// selling takes orders as long as work lasts, and then waits until all are shipped.
func (s *shop) selling(ctx context.Context, work func(context.Context) error) error {
	open, end := context.WithCancel(ctx)
	sold := make(chan error, 1)
	go func() { sold <- s.sell(ctx, open) }()
	err := work(ctx)
	end()
	if err := errors.Join(err, <-sold); err != nil {
		return err
	}
	for s.shipped.Load() < s.sold.Load() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d orders and %d shipped: %w", s.sold.Load(), s.shipped.Load(), ctx.Err())
		case <-time.After(pace):
		}
	}
	return nil
}

// sell takes orders until the shop closes.
func (s *shop) sell(ctx context.Context, open context.Context) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		select {
		case <-open.Done():
			return nil
		case <-ticker.C:
		}
		number := s.sold.Load()
		err := postbox.InTx(ctx, s.db, func(ctx context.Context, _ *sql.Tx) error { // the order itself is left out
			msg := message.NewMessageWithContext(ctx, postbox.NewMessageID(), []byte("one book"))
			msg.Metadata.Set("partition_key", "customer-"+strconv.FormatInt(number%customers, 10))
			return s.outbox.Publish(orders, msg)
		})
		if err != nil {
			return fmt.Errorf("order %d: %w", number, err)
		}
		s.sold.Add(1)
	}
}

// close lets running handlers end.
func (s *shop) close() error {
	var ended error
	if s.listen != nil {
		ended = errors.Join(s.router.Close(), <-s.ended)
	}
	return errors.Join(ended, s.server.Close(), s.store.Close(), s.outbox.Close())
}
