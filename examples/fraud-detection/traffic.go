package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

const (
	orderEvery       = 3 * time.Millisecond
	customersAtATime = 4
	largestOrder     = 5
	stockOfProduct   = 1_000_000
	lookAgain        = 20 * time.Millisecond
)

// traffic creates users and products, and lets users place orders while some of them turn suspect.
func (s *shop) traffic(ctx context.Context, p plan) error {
	userIDs, productIDs := names("user", p.users), names("product", p.products)
	for _, id := range userIDs {
		if err := s.users.create(ctx, id); err != nil {
			return fmt.Errorf("create a user: %w", err)
		}
	}
	for _, id := range productIDs {
		if err := s.products.create(ctx, id, stockOfProduct); err != nil {
			return fmt.Errorf("create a product: %w", err)
		}
	}
	if err := s.waitUntilQuiet(ctx); err != nil { // until the orders service has heard of them all
		return err
	}
	atATime, ctx := errgroup.WithContext(ctx)
	atATime.SetLimit(customersAtATime)
	pause := time.NewTicker(orderEvery)
	defer pause.Stop()
	every := p.orders / (p.suspects + 1)
	for n := range p.orders {
		<-pause.C
		atATime.Go(func() error { return s.placeSomeOrder(ctx, userIDs, productIDs) })
		if turn := n / every; n%every == every-1 && turn < p.suspects {
			atATime.Go(func() error { return s.users.suspect(ctx, userIDs[turn]) })
		}
	}
	return atATime.Wait()
}

func (s *shop) placeSomeOrder(ctx context.Context, userIDs, productIDs []string) error {
	err := s.orders.place(ctx, order{
		ID:        postbox.NewMessageID(),
		UserID:    userIDs[rand.IntN(len(userIDs))],       //nolint:gosec // any dice will do
		ProductID: productIDs[rand.IntN(len(productIDs))], //nolint:gosec // any dice will do
		Quantity:  1 + rand.IntN(largestOrder),            //nolint:gosec // any dice will do
		Status:    placed,
	})
	if errors.Is(err, errRefused) {
		s.refused.Add(1)
		return nil
	}
	if err == nil {
		s.placed.Add(1)
	}
	return err
}

// names are new ones in each run, which goes on in the tables of the run before.
func names(kind string, n int) []string {
	run, all := rand.IntN(1_000_000), make([]string, n) //nolint:gosec // any dice will do
	for i := range all {
		all[i] = fmt.Sprintf("%s %06d-%02d", kind, run, i)
	}
	return all
}

// noisyBus is a broker that gets every third event twice, as any broker may deliver it. It counts
// what is under way.
type noisyBus struct {
	message.Publisher
	groups map[string]int64 // that hear of a topic

	once, again atomic.Int64 // events published
	expected    atomic.Int64 // deliveries, to all groups
	delivered   atomic.Int64 // of them, and handled
}

func newNoisyBus(publisher message.Publisher) *noisyBus {
	return &noisyBus{Publisher: publisher, groups: map[string]int64{}}
}

// Publish publishes the messages in their order, every third twice in a row.
func (b *noisyBus) Publish(topic string, messages ...*message.Message) error {
	const third = 3
	var all []*message.Message
	for _, msg := range messages {
		all = append(all, msg)
		if b.once.Add(1)%third == 0 {
			all = append(all, msg)
			b.again.Add(1)
		}
	}
	deliveries := int64(len(all)) * b.groups[topic]
	b.expected.Add(deliveries) // before they are under way, so that nobody thinks that all is quiet
	err := b.Publisher.Publish(topic, all...)
	if err != nil {
		b.expected.Add(-deliveries)
	}
	return err
}

// countDelivery is a middleware outside of the inbox.
func (b *noisyBus) countDelivery(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if err == nil && b.groups[message.SubscribeTopicFromCtx(msg.Context())] > 0 { // a queue is no topic of the broker
			b.delivered.Add(1)
		}
		return produced, err
	}
}

// waitUntilQuiet returns when nothing is under way any more: neither at the broker nor in any
// service.
func (s *shop) waitUntilQuiet(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		quiet, err := s.quiet(ctx)
		if err != nil || quiet {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until all events are handled: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func (s *shop) quiet(ctx context.Context) (bool, error) {
	expected := s.bus.expected.Load()
	if s.bus.delivered.Load() < expected {
		return false, nil
	}
	for _, own := range s.services() {
		if idle, err := own.idle(ctx); err != nil || !idle {
			return false, err
		}
	}
	return s.bus.expected.Load() == expected, nil // or an event was on its way while we looked
}
