package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

const (
	producers = 4
	keys      = 64
	// payload is the size of a small business message, in bytes.
	payload = 300
	// claimRetention is short, so that the run sees claims go as well as come.
	claimRetention = 30 * time.Second
)

// consumers are who must have applied each message: one at once, one from its queue.
var consumers = []string{"at-once", "later"}

// flow is the pipeline.
type flow struct {
	where  *place.Place
	topic  string
	outbox *forwarder.Publisher
	store  *inboxstore.Store
	router *router.Router
	broker broker
	ended  chan error

	orders  *place.Orders
	handled atomic.Int64 // by the last consumer
}

func startFlow(ctx context.Context, config Config, where *place.Place) (*flow, error) {
	f := &flow{
		where: where, topic: "soak-" + postbox.NewMessageID(), ended: make(chan error, 1),
	}
	var err error
	if f.broker, err = openBroker(config.Broker, f.topic); err != nil {
		return nil, err
	}
	if err := f.assemble(where.DB); err != nil {
		return nil, err
	}
	f.orders = where.NewOrders(f.outbox, f.topic, keys, payload)
	go func() { f.ended <- f.router.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-f.router.Running():
		return f, nil
	case err := <-f.ended:
		return nil, fmt.Errorf("start the pipeline: %w", err)
	}
}

func (f *flow) assemble(db *sql.DB) (err error) {
	if f.outbox, err = forwarder.NewPublisher(postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, forwarder.PublisherConfig{}, nil); err != nil {
		return err
	}
	f.store, err = inboxstore.New(postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, inboxstore.Config{ClaimRetention: claimRetention}, nil)
	if err != nil {
		return err
	}
	if f.router, err = router.New(nil, router.Config{Store: f.store, Outbox: f.outbox}, nil); err != nil {
		return err
	}
	if _, err = f.router.AddForwarder(postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, f.broker.publisher, forwarder.Config{
		Classify: f.broker.classify, BatchSize: f.broker.batchSize,
	}); err != nil {
		return err
	}
	atOnce, err := f.broker.subscriber(consumers[0])
	if err != nil {
		return err
	}
	if _, err = f.router.AddInboxHandler(consumers[0], f.topic, atOnce, "", f.apply(consumers[0]), middleware.InboxConfig{}); err != nil {
		return err
	}
	later, err := f.broker.subscriber(consumers[1])
	if err != nil {
		return err
	}
	_, err = f.router.AddQueueHandler(consumers[1], f.topic, later, "", f.apply(consumers[1]),
		router.QueueConfig{Worker: queue.Config{Transactional: true}})
	return err
}

// apply is a handler that writes its effect.
func (f *flow) apply(consumer string) message.HandlerFunc {
	last := consumer == consumers[len(consumers)-1]
	return func(msg *message.Message) ([]*message.Message, error) {
		tx, ok := postbox.TxFromContext(msg.Context())
		if !ok {
			return nil, postbox.ErrNoTransaction
		}
		key, seq, err := place.Number(msg)
		if err != nil {
			return nil, postbox.Permanent(err)
		}
		if last {
			f.handled.Add(1)
		}
		return nil, place.Apply(msg.Context(), tx, consumer, key, seq)
	}
}

func (f *flow) close() error {
	err := errors.Join(f.router.Close(), <-f.ended)
	return errors.Join(err, f.store.Close(), f.outbox.Close(), f.broker.close())
}
