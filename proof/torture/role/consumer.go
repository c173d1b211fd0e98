package role

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
	"github.com/postbox-go/watermill-postbox/router"
)

// ProbeMax is the longest pause between two looks whether an outage is over.
const ProbeMax = 2 * time.Second

// claimRetention is longer than any run, and short enough that the claims that were there before
// are purged in it.
const claimRetention = time.Hour

// closeTimeout of a router is longer than the slowest handler. A router that cannot subscribe when
// it starts, since a broker is away, waits for so long until it gives up.
const closeTimeout = 10 * time.Second

// service is a router with all that it needs.
type service struct {
	*router.Router

	process *process
	store   *inboxstore.Store
	outbox  *forwarder.Publisher
	// applied has the deliveries whose handler ran to its commit.
	applied sync.Map
}

func (p *process) newService() (*service, error) {
	s := &service{process: p}
	var err error
	s.store, err = inboxstore.New(postbox.Database{DB: p.db, Dialect: postbox.PostgreSQL}, inboxstore.Config{ClaimRetention: claimRetention}, p.logger)
	if err != nil {
		return nil, err
	}
	s.outbox, err = forwarder.NewPublisher(postbox.Database{DB: p.db, Dialect: postbox.PostgreSQL}, forwarder.PublisherConfig{}, p.logger)
	if err != nil {
		return nil, err
	}
	var others []string
	for _, flow := range ledger.Flows {
		if flow.Queue() != "" {
			others = append(others, flow.Queue())
		}
	}
	inner, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeTimeout}, p.logger)
	if err != nil {
		return nil, err
	}
	s.Router, err = router.New(inner, router.Config{Store: s.store, Outbox: s.outbox, OtherQueues: others}, p.logger)
	if err != nil {
		return nil, err
	}
	s.Router.Router().AddMiddleware(s.noteDelivery, deliverTwice)
	return s, nil
}

// serve adds handlers and runs the router until ctx ends.
func (p *process) serve(ctx context.Context, add func(s *service, flow ledger.Flow, subscriber message.Subscriber) error) error {
	s, err := p.newService()
	if err != nil {
		return err
	}
	for _, flow := range ledger.Flows {
		if (flow.Work == ledger.Inbox) != (p.Role == Consumer) {
			continue
		}
		subscriber, err := insist(ctx, func() (message.Subscriber, error) { return p.subscriber(flow) })
		if err != nil {
			return nil //nolint:nilerr // told to stop before it could start
		}
		if err := add(s, flow, subscriber); err != nil {
			return err
		}
	}
	// The store outlives the handlers, and the outbox too.
	return errors.Join(s.Run(ctx), s.Close(), s.outbox.Close(), s.store.Close())
}

// consume handles deliveries of both brokers as they come.
func (p *process) consume(ctx context.Context) error {
	return p.serve(ctx, func(s *service, flow ledger.Flow, subscriber message.Subscriber) error {
		handler, err := s.AddInboxHandler(flow.Consumer, flow.Topic, subscriber, flow.Emits, p.handle(flow),
			middleware.InboxConfig{Retry: soon(flow.Attempts)})
		if err == nil {
			handler.AddMiddleware(s.noteCommit)
		}
		return err
	})
}

// noteCommit works in the transaction of an inbox.
func (s *service) noteCommit(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		postbox.AfterCommit(msg.Context(), func() { s.applied.Store(msg, true) })
		return h(msg)
	}
}

// noteDelivery is outside of all: it sees duplicates, and that something was stored.
func (s *service) noteDelivery(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		consumer, stores := strings.CutSuffix(message.HandlerNameFromCtx(msg.Context()), "_store")
		_, applied := s.applied.LoadAndDelete(msg)
		intent, unreadable := readMessage(msg)
		switch {
		case err != nil || unreadable != nil || applied:
		case stores:
			s.process.history.Write(record(history.Stored, intent, consumer))
		case s.process.Role == Consumer:
			s.process.history.Write(record(history.Duplicate, intent, consumer))
		}
		return produced, err
	}
}

// deliverTwice lets some messages be handled by two handlers at the same instant.
func deliverTwice(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if isQueue(message.SubscribeTopicFromCtx(msg.Context())) || !chance(50) {
			return h(msg)
		}
		twin := msg.Copy()
		twin.SetContext(msg.Context())
		var twins sync.WaitGroup
		twins.Go(func() {
			defer func() { _ = recover() }() // the message itself tells the router of its panic
			_, _ = h(twin)
		})
		defer twins.Wait()
		return h(msg)
	}
}

// isQueue says whether a handler works a queue off, which delivers each message to one handler by
// contract.
func isQueue(topic string) bool {
	for _, flow := range ledger.Flows {
		if flow.Queue() == topic {
			return true
		}
	}
	return false
}
