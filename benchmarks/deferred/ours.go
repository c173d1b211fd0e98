package deferred

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/queue"
)

// queue is where ours keeps messages.
const queueName = "queue"

// fillers store at a time what a queue begins with, and so share commits.
const fillers = 256

// fill makes the tables and stores n messages.
func (s site) fill(ctx context.Context, n int) error {
	if err := postbox.Migrate(ctx, s.filling()); err != nil {
		return err
	}
	if err := accounts.Create(ctx, s.setup, s.CreateAccounts...); err != nil {
		return err
	}
	return s.store(ctx, load.Messages(0, n))
}

// store defers the messages, each once.
func (s site) store(ctx context.Context, list []*message.Message) error {
	inbox, err := inboxstore.New(s.filling(), inboxstore.Config{DisableNotify: true}, nil)
	if err != nil {
		return err
	}
	err = load.Clients(ctx, len(list), fillers, func(ctx context.Context, i int) error {
		_, err := inbox.Defer(ctx, queueName, inboxstore.Key{Consumer: queueName, MessageID: list[i].UUID}, list[i])
		return err
	})
	return errors.Join(err, inbox.Close())
}

// handler handles a message, in the transaction that its context carries, if any.
type handler func(msg *message.Message) error

// work starts the clock, and a subscriber that handles n messages; each has a goroutine, as a
// router gives it.
func (s site) work(ctx context.Context, stage *measure.Stage, n int, config queue.Config, handle handler) error {
	if err := stage.Start(ctx); err != nil {
		return err
	}
	inbox, err := inboxstore.New(s.database, inboxstore.Config{}, nil)
	if err != nil {
		return err
	}
	subscriber, err := queue.NewSubscriber(inbox, config, nil)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, queueName)
	if err != nil {
		return err
	}
	done := newCountdown(n)
	var running sync.WaitGroup
	running.Go(func() {
		for msg := range messages {
			running.Go(func() {
				if err := handle(msg); err != nil {
					queue.Fail(msg.Context(), err)
					msg.Nack()
					return
				}
				msg.Ack()
				done.one()
			})
		}
	})
	err = done.wait(ctx)
	err = errors.Join(err, stage.Stop(n), subscriber.Close())
	running.Wait()
	return errors.Join(err, inbox.Close())
}

// noop handles nothing.
func noop(*message.Message) error { return nil }

// updates returns a handler that makes one update in the message's transaction, with a prepared
// statement.
func (s site) updates(ctx context.Context) (handler, error) {
	statement, err := s.database.DB.PrepareContext(ctx, s.UpdateAccount)
	if err != nil {
		return nil, err
	}
	return func(msg *message.Message) error {
		tx, ok := postbox.TxFromContext(msg.Context())
		if !ok {
			return errors.New("the message brings no transaction")
		}
		account, err := account(msg.Metadata.Get(postbox.MetadataOrderingKey))
		if err != nil {
			return err
		}
		_, err = tx.StmtContext(msg.Context(), statement).ExecContext(msg.Context(), account)
		return err
	}, nil
}

// account is the one that messages of a key are about.
func account(key string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimPrefix(key, "customer-"), 10, 64)
	return n + 1, err
}

// countdown tells when so many messages have been handled.
type countdown struct {
	left    atomic.Int64
	reached chan struct{}
}

func newCountdown(n int) *countdown {
	c := &countdown{reached: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *countdown) one() {
	if c.left.Add(-1) == 0 {
		close(c.reached)
	}
}

// stuckTimeout is longer than any run takes.
const stuckTimeout = 5 * time.Minute

func (c *countdown) wait(ctx context.Context) error {
	select {
	case <-c.reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stuckTimeout):
		return fmt.Errorf("%d messages are missing, and none came for long", c.left.Load())
	}
}
