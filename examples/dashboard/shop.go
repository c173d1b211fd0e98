package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

const (
	orderPlaced = "orders.placed"
	payments    = "payments" // the queue
	customers   = 30

	// The customers who make trouble in an incident.
	unreachable = "customer-07" // their shop does not take events at the moment, so the outbox tries again and again
	noCredit    = "customer-13" // one of their cards is refused for good, now and then
	slowBank    = "customer-21" // their bank fails, so the queue tries again

	// rush is the time from one rush of orders to the next.
	rush = 2 * time.Minute
	// history is how long messages that are done are kept, so that the dashboard can show them.
	history = 10 * time.Minute
)

// order is an event of the shop.
type order struct {
	OrderID  int64  `json:"order_id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

// shop places orders, publishes their events from the outbox, and takes payments from a queue.
type shop struct {
	database postbox.Database
	admin    *admin.Admin
	incident atomic.Bool // some customers make trouble
}

func (s *shop) run(ctx context.Context) (err error) {
	outbox, err := forwarder.NewPublisher(s.database, forwarder.PublisherConfig{AllowAutocommit: true}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outbox.Close()) }()
	store, err := inboxstore.New(s.database, inboxstore.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	fwd, err := forwarder.New(s.database, bus{store, &s.incident}, forwarder.Config{}, nil)
	if err != nil {
		return err
	}
	subscriber, err := queue.NewSubscriber(store, queue.Config{Concurrency: 4, Retry: postbox.RetryProfile{Attempts: 6}}, nil)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return err
	}
	router.AddConsumerHandler(payments, payments, subscriber, s.takePayment).AddMiddleware(middleware.Process)

	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return fwd.Run(ctx) })
	running.Go(func() error { return router.Run(ctx) })
	running.Go(func() error { return s.keepHistory(ctx) })
	running.Go(func() error { return placeOrders(ctx, outbox) })
	return running.Wait()
}

// bus is the way from the outbox to the queue. A shop of several services has a broker there.
type bus struct {
	store    *inboxstore.Store
	incident *atomic.Bool
}

// Publish stores each message in the queue, once.
func (b bus) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		var o order
		if err := json.Unmarshal(msg.Payload, &o); err != nil {
			return postbox.Permanent(err)
		}
		if b.incident.Load() && o.Customer == unreachable {
			return postbox.RetryAfter(fmt.Errorf("the shop of %s does not take events: 503 Service Unavailable", o.Customer), time.Minute)
		}
		if b.incident.Load() && o.Customer == noCredit && o.OrderID%2 == 0 {
			return postbox.Permanent(fmt.Errorf("order %d: card ending in %04d is not accepted", o.OrderID, o.OrderID%10_000))
		}
		key := inboxstore.Key{Consumer: payments, MessageID: msg.UUID}
		if _, err := b.store.Defer(msg.Context(), payments, key, msg); err != nil {
			return err
		}
	}
	return nil
}

// Close does nothing: the store belongs to the shop.
func (bus) Close() error { return nil }

// takePayment asks the bank, which takes a moment.
func (s *shop) takePayment(msg *message.Message) error {
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return postbox.Permanent(err)
	}
	pause := time.NewTimer(time.Duration(20+rand.IntN(120)) * time.Millisecond) //nolint:gosec // no secret
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-msg.Context().Done():
		return msg.Context().Err()
	}
	if s.incident.Load() && o.Customer == slowBank {
		return fmt.Errorf("bank of %s: connection to 192.0.2.17:8443 timed out", o.Customer)
	}
	return nil
}

// placeOrders places orders, sometimes more and sometimes fewer than the bank can take.
func placeOrders(ctx context.Context, outbox message.Publisher) error {
	began := time.Now()
	for id := int64(1); ; id++ {
		wave := 1 + 0.9*math.Sin(2*math.Pi*time.Since(began).Seconds()/rush.Seconds())
		pause := time.NewTimer(time.Duration(float64(30*time.Millisecond) / wave))
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
		o := order{OrderID: id, Customer: fmt.Sprintf("customer-%02d", rand.IntN(customers)), Cents: 100 + rand.Int64N(20_000)} //nolint:gosec // no secret
		payload, err := json.Marshal(o)
		if err != nil {
			return err
		}
		msg := message.NewMessageWithContext(ctx, postbox.NewMessageID(), payload)
		msg.Metadata.Set(postbox.MetadataOrderingKey, o.Customer)
		msg.Metadata.Set(postbox.MetadataCorrelationID, fmt.Sprintf("request-%d", id))
		if err := outbox.Publish(orderPlaced, msg); err != nil {
			return err
		}
	}
}

// keepHistory keeps messages that are done, as soon as the outbox and the queue exist.
func (s *shop) keepHistory(ctx context.Context) error {
	for _, target := range []admin.Target{admin.Outbox("outbox"), admin.Queue(payments)} {
		for {
			_, err := s.admin.ChangeSettings(ctx, target, func(stored *admin.Settings) error {
				stored.History = history
				return nil
			})
			if err == nil {
				break
			}
			if !errors.Is(err, admin.ErrNotFound) {
				return err
			}
			pause := time.NewTimer(100 * time.Millisecond)
			select {
			case <-ctx.Done():
				pause.Stop()
				return ctx.Err()
			case <-pause.C:
			}
		}
	}
	return nil
}
