package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

// prefixOf the tables of a service. The services share a database, and each looks at its own tables
// only: it could move to a database of its own.
func prefixOf(service string) string { return "fraud_" + service + "_" }

// briefly is the pause between attempts: the usual seconds are long for a demo.
var briefly = postbox.RetryProfile{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond}

// service is what each of the three has of its own.
type service struct {
	name   string
	db     *sql.DB
	outbox *forwarder.Publisher
	store  *inboxstore.Store
	router *router.Router
	admin  *admin.Admin

	forwarder *forwarder.Forwarder
	pipes     *pipes.Pipes
	bus       *noisyBus
	ended     chan error // what the router had to say at its end
}

func newService(p *pipes.Pipes, name string, bus *noisyBus) (s *service, err error) {
	own := p.Tables(prefixOf(name))
	s = &service{name: name, db: p.DB, pipes: p, bus: bus, ended: make(chan error, 1)}
	// Events are published to the outbox, in the transaction of the change that they tell of.
	if s.outbox, err = forwarder.NewPublisher(own, forwarder.PublisherConfig{}, p.Logger); err != nil {
		return nil, err
	}
	// The forwarder takes them to the broker.
	s.forwarder, err = forwarder.New(own, bus, forwarder.Config{
		Classify: p.Classify, BatchSize: p.BatchSize,
	}, p.Logger)
	if err != nil {
		return nil, err
	}
	// The store remembers which events were handled, and has the queues of those that wait.
	if s.store, err = inboxstore.New(own, inboxstore.Config{}, p.Logger); err != nil {
		return nil, err
	}
	if s.router, err = router.New(nil, router.Config{Store: s.store, Outbox: s.outbox}, p.Logger); err != nil {
		return nil, err
	}
	s.router.Router().AddMiddleware(bus.countDelivery)
	s.admin, err = admin.New(own, admin.Config{}, p.Logger)
	return s, err
}

// on lets the service handle each event of the topic once. What the handler returns is published to
// another topic.
func (s *service) on(topic, publishTopic string, handler message.HandlerFunc) error {
	subscriber, err := s.subscribe(topic)
	if err != nil {
		return err
	}
	_, err = s.router.AddInboxHandler("on "+topic, topic, subscriber, publishTopic, handler, middleware.InboxConfig{Retry: briefly})
	return err
}

// later lets the service store each event of the topic in a queue, once, and handle it from there.
func (s *service) later(queueName, topic, publishTopic string, handler message.HandlerFunc, config queue.Config) error {
	subscriber, err := s.subscribe(topic)
	if err != nil {
		return err
	}
	config.Unordered = true
	_, err = s.router.AddQueueHandler(queueName, topic, subscriber, publishTopic, handler, router.QueueConfig{Worker: config})
	return err
}

func (s *service) subscribe(topic string) (message.Subscriber, error) {
	s.bus.groups[topic]++
	return s.pipes.NewSubscriber(s.name, topic)
}

// publish writes an event to the outbox, in the transaction that ctx carries.
func (s *service) publish(ctx context.Context, topic, key string, content any) error {
	event, err := newEvent(ctx, key, content)
	if err != nil {
		return err
	}
	return s.outbox.Publish(topic, event)
}

// idle says whether nothing waits: neither in a queue nor in the outbox.
func (s *service) idle(ctx context.Context) (bool, error) {
	queues, err := s.admin.Queues(ctx)
	for _, queue := range queues {
		if queue.Pending > 0 {
			return false, nil
		}
	}
	return err == nil, err
}

// start returns when the service has subscribed to all that it handles.
func (s *service) start(ctx context.Context) error {
	go func() { s.ended <- s.router.Run(context.WithoutCancel(ctx)) }() // close ends it
	select {
	case <-s.router.Running():
		return nil
	case err := <-s.ended:
		s.ended <- nil // for close
		return err
	}
}

// close lets the handlers under way end.
func (s *service) close() error {
	return errors.Join(s.router.Close(), <-s.ended, s.store.Close(), s.outbox.Close())
}

// newEvent returns an event. Those with the same key stay in their order.
func newEvent(ctx context.Context, key string, content any) (*message.Message, error) {
	payload, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	event := message.NewMessageWithContext(ctx, postbox.NewMessageID(), payload)
	event.Metadata.Set(postbox.MetadataOrderingKey, key)
	return event, nil
}

// received returns the transaction that is open for the handler, and what the event says.
func received[T any](msg *message.Message) (tx *sql.Tx, content T, err error) {
	tx, ok := postbox.TxFromContext(msg.Context())
	if !ok {
		return nil, content, postbox.ErrNoTransaction
	}
	if err := json.Unmarshal(msg.Payload, &content); err != nil {
		return nil, content, postbox.Permanent(fmt.Errorf("event %s: %w", msg.UUID, err)) // no retry can help
	}
	return tx, content, nil
}
