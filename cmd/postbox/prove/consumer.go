package prove

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

func (c *child) publish(ctx context.Context, to *forwarder.Publisher, intents []intent) error {
	messages := make([]*message.Message, len(intents))
	for n, i := range intents {
		payload, err := json.Marshal(i)
		if err != nil {
			return err
		}
		messages[n] = message.NewMessageWithContext(ctx, i.Message, payload)
		if i.Key != "" {
			messages[n].Metadata.Set(postbox.MetadataOrderingKey, i.Key)
		}
	}
	return to.Publish(topic, messages...) //nolint:contextcheck // the messages have it
}

// serve runs a Watermill router with a store until ctx ends.
func (c *child) serve(ctx context.Context, add func(store *inboxstore.Store, r *router.Router) error) (err error) {
	store, err := inboxstore.New(c.database(), inboxstore.Config{CloseTimeout: closePatience}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	inner, err := message.NewRouter(message.RouterConfig{CloseTimeout: 2 * closePatience}, nil)
	if err != nil {
		return err
	}
	r, err := router.New(inner, router.Config{Store: store, OtherQueues: []string{queueGroup, batchGroup}}, nil) //nolint:contextcheck // it runs with one
	if err != nil {
		return err
	}
	if err := add(store, r); err != nil {
		return err
	}
	return errors.Join(r.Run(ctx), r.Close())
}

// consume has the inbox, and stores messages in both queues.
func (c *child) consume(ctx context.Context) error {
	return c.serve(ctx, func(_ *inboxstore.Store, r *router.Router) error { //nolint:contextcheck // messages have one
		_, err := r.AddInboxHandler(inboxGroup, topic, c.subscriber(inboxGroup), "", c.handler(inboxGroup), middleware.InboxConfig{Retry: forever()})
		for _, name := range []string{queueGroup, batchGroup} {
			err = errors.Join(err, r.AddDeferral(name+"_store", topic, c.subscriber(name), name, middleware.DeferConfig{Retry: forever()}))
		}
		return err
	})
}

func (c *child) subscriber(group string) *subscriber {
	s := newSubscriber(c.client, group)
	s.early = planted.Early
	return s
}

// workOff handles the messages of the queue one by one.
func (c *child) workOff(ctx context.Context) error {
	return c.serve(ctx, func(store *inboxstore.Store, r *router.Router) error { //nolint:contextcheck // messages have one
		worker, err := queue.NewSubscriber(store, queue.Config{
			Transactional: true, Concurrency: max(1, c.Pool-1), Retry: forever(), Tuning: tuning(), Unordered: planted.Unordered,
		}, nil)
		if err != nil {
			return err
		}
		h := c.handler(queueGroup)
		r.Router().AddConsumerHandler(queueGroup, queueGroup, worker, func(msg *message.Message) error {
			_, err := h(msg)
			return err
		}).AddMiddleware(middleware.Process)
		return nil
	})
}

// workOffBatches handles many messages at once.
func (c *child) workOffBatches(ctx context.Context) (err error) {
	store, err := inboxstore.New(c.database(), inboxstore.Config{CloseTimeout: closePatience}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	b, err := queue.NewBatch(store, batchGroup, func(ctx context.Context, messages []*message.Message) error {
		for _, msg := range messages {
			if err := c.apply(ctx, batchGroup, msg); err != nil {
				return err
			}
		}
		return c.trouble(ctx)
	}, queue.BatchConfig{
		Size: 20, Age: retryPause, Worker: queue.Config{Transactional: true, Retry: forever(), Tuning: tuning()},
	}, nil)
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

func (c *child) handler(consumer string) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if err := c.apply(msg.Context(), consumer, msg); err != nil {
			return nil, err
		}
		return nil, c.trouble(msg.Context())
	}
}

// apply writes the effect of a message, and which number of its key was the last one that this
// transaction sees.
func (c *child) apply(ctx context.Context, consumer string, msg *message.Message) error {
	var i intent
	if err := json.Unmarshal(msg.Payload, &i); err != nil {
		return postbox.Permanent(err)
	}
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return postbox.ErrNoTransaction
	}
	var on interface {
		querier
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	} = tx
	if planted.Outside {
		on = c.db
	}
	effects := c.place.table("effects")
	var prev int64
	if i.Key != "" && consumer == queueGroup {
		err := on.QueryRowContext(ctx, fmt.Sprintf("SELECT COALESCE(MAX(seq), 0) FROM %s WHERE consumer = '%s' AND k = '%s'", effects, consumer, i.Key)).Scan(&prev)
		if err != nil {
			return err
		}
	}
	times := 1
	if planted.Twice && c.dice.n(3) == 0 {
		times = 2
	}
	for range times {
		_, err := on.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (consumer, message, k, seq, prev) VALUES ('%s', '%s', '%s', %d, %d)", effects, consumer, i.Message, i.Key, i.Seq, prev))
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *child) catchesUp() bool { return c.faults.Err() != nil }

// linger waits, but not for longer than there are faults.
func (c *child) linger(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.faults.Done():
	case <-ctx.Done():
	}
}

// longHandler is how long some handlers take at the longest.
const longHandler = 200 * time.Millisecond

var errPlanned = errors.New("the handler fails on purpose")

// trouble is what happens to some handlers after they have written.
func (c *child) trouble(ctx context.Context) error {
	failing := 10
	if planted != (flaws{}) { // in a short run
		failing = 50
	}
	switch n := c.dice.n(200); {
	case n < failing:
		c.say(handlerFailed)
		return errPlanned
	case n < failing+1:
		c.say(handlerFailed)
		panic(errPlanned)
	case c.catchesUp(): // what follows takes time
	case n < failing+3:
		if tx, ok := postbox.TxFromContext(ctx); ok {
			c.cutOwn(ctx, tx)
		}
	case n < failing+20: // so that faults meet handlers
		c.linger(ctx, c.dice.upTo(longHandler))
	case n < failing+21:
		if c.Dialect != postbox.SQLite { // it would keep all others from writing
			c.say(slow)
			c.linger(ctx, lease*3/2)
			return ctx.Err()
		}
	}
	return nil
}
