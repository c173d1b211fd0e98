package overload

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
	"github.com/postbox-go/watermill-postbox/queue"
)

const (
	queueName = "slow"
	// everyTwice: one of so many deliveries comes again.
	everyTwice = 8
)

// deferrals are a load of deliveries that are deferred, all at a time, before a slow handler.
type deferrals struct {
	where   *place.Place
	store   *inboxstore.Store
	worker  *queue.Subscriber
	router  *message.Router
	ended   chan error
	filling []byte
	stored  []int64 // number of the last message of each key, which has one writer
}

func startQueue(where *place.Place, s scenario, g *gate) (*deferrals, error) {
	q := &deferrals{where: where, ended: make(chan error, 1), filling: place.Filling(s.payload), stored: make([]int64, s.keys)}
	var err error
	if q.store, err = inboxstore.New(postbox.Database{DB: where.DB, Dialect: postbox.PostgreSQL}, inboxstore.Config{}, nil); err != nil {
		return nil, err
	}
	q.worker, err = queue.NewSubscriber(q.store, queue.Config{Transactional: true, Concurrency: s.workers, Tuning: postbox.Tuning{PageSize: s.page}}, nil)
	if err != nil {
		return nil, err
	}
	if q.router, err = message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}); err != nil {
		return nil, err
	}
	q.router.AddConsumerHandler(queueName, queueName, q.worker, func(msg *message.Message) error {
		tx, ok := postbox.TxFromContext(msg.Context())
		if !ok {
			return postbox.ErrNoTransaction
		}
		key, seq, err := place.Number(msg)
		if err != nil {
			return postbox.Permanent(err)
		}
		if err := g.pass(msg.Context()); err != nil {
			return err
		}
		return place.Apply(msg.Context(), tx, queueName, key, seq)
	}).AddMiddleware(middleware.Process)
	go func() { q.ended <- q.router.Run(context.Background()) }()
	select {
	case <-q.router.Running():
		return q, nil
	case err := <-q.ended:
		return nil, fmt.Errorf("start the worker: %w", err)
	}
}

// write is a delivery of the writer's own key, now and then a delivery that comes again.
func (q *deferrals) write(ctx context.Context, writer int) (int, error) {
	seq := q.stored[writer] + 1
	msg := place.Message(fmt.Sprint("key-", writer), seq, q.filling)
	key := inboxstore.Key{Consumer: queueName, Topic: topic, MessageID: msg.UUID}
	if _, err := q.store.Defer(ctx, queueName, key, msg); err != nil {
		return 0, err
	}
	q.stored[writer] = seq
	if seq%everyTwice != 0 {
		return 1, nil
	}
	fresh, err := q.store.Defer(ctx, queueName, key, msg)
	if fresh {
		err = fmt.Errorf("message %d of key %d was stored twice", seq, writer)
	}
	return 1, err
}

func (q *deferrals) account(ctx context.Context) (place.Account, error) {
	keys := make([]string, len(q.stored))
	for i := range keys {
		keys[i] = fmt.Sprint("key-", i)
	}
	if err := q.where.Record(ctx, keys, q.stored); err != nil {
		return place.Account{}, err
	}
	return q.where.Account(ctx, queueName)
}

func (q *deferrals) close() error {
	return errors.Join(q.router.Close(), <-q.ended, q.worker.Close(), q.store.Close())
}
