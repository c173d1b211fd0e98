package clusters

import (
	"context"
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
	"github.com/postbox-go/watermill-postbox/router"
)

const (
	consumer = "inbox"
	keys     = 40
	// rate is how many messages are written in a second: the servers and this process share the
	// machine.
	rate = 50
	// payload is the size of a small business message, in bytes.
	payload = 300
	// batchSize is what documentation advises with these publishers, and probeMax a short pause in
	// an outage, since runs are short.
	batchSize, probeMax = 100, 2 * time.Second
)

// flow is the pipeline: outbox, broker, inbox, effect.
type flow struct {
	where  *place.Place
	topic  string
	to     *broker
	outbox *forwarder.Publisher
	store  *inboxstore.Store
	router *router.Router
	ended  chan error

	orders  *place.Orders
	applied atomic.Int64
}

func startFlow(ctx context.Context, where *place.Place, to *broker, topic string) (*flow, error) {
	f := &flow{where: where, topic: topic, to: to, ended: make(chan error, 1)}
	if err := f.assemble(); err != nil {
		return nil, err
	}
	f.orders = where.NewOrders(f.outbox, topic, keys, payload)
	go func() { f.ended <- f.router.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-f.router.Running():
		return f, nil
	case err := <-f.ended:
		return nil, fmt.Errorf("start the pipeline: %w", err)
	}
}

func (f *flow) assemble() (err error) {
	db := f.where.DB
	if f.outbox, err = forwarder.NewPublisher(postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, forwarder.PublisherConfig{}, nil); err != nil {
		return err
	}
	if f.store, err = inboxstore.New(postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, inboxstore.Config{}, nil); err != nil {
		return err
	}
	if f.router, err = router.New(nil, router.Config{Store: f.store, Outbox: f.outbox}, nil); err != nil {
		return err
	}
	if _, err = f.router.AddForwarder(postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, f.to.publisher, forwarder.Config{
		Classify: f.to.classify, BatchSize: batchSize, Tuning: postbox.Tuning{ProbeMax: probeMax},
	}); err != nil {
		return err
	}
	_, err = f.router.AddInboxHandler(consumer, f.topic, f.to.subscriber, "", f.apply, middleware.InboxConfig{})
	return err
}

// apply is the handler: it writes its effect.
func (f *flow) apply(msg *message.Message) ([]*message.Message, error) {
	tx, ok := postbox.TxFromContext(msg.Context())
	if !ok {
		return nil, postbox.ErrNoTransaction
	}
	key, seq, err := place.Number(msg)
	if err != nil {
		return nil, postbox.Permanent(err)
	}
	f.applied.Add(1)
	return nil, place.Apply(msg.Context(), tx, consumer, key, seq)
}

func (f *flow) close() error {
	err := errors.Join(f.router.Close(), <-f.ended)
	return errors.Join(err, f.store.Close(), f.outbox.Close(), f.to.publisher.Close())
}
