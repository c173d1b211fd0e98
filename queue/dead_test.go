package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

func TestQueue_OnDead_is_called_once_after_the_commit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1) // G10
		b := newQueueBench(t, database)
		b.Put("a/1", "fine", "b/1")
		told := make(chan queue.Failure, 10)
		config := inboxtest.Quick(func(c *queue.Config) { c.Transactional = true })
		config.OnDead = func(ctx context.Context, p queue.Failure) {
			told <- p
			if n := b.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE message_id = ?", []byte(p.Message.UUID)); n != 1 {
				t.Errorf("%d dead letters can be seen", n)
			}
			if _, found := postbox.TxFromContext(ctx); found || ctx.Err() != nil {
				t.Errorf("a context with a transaction that is over, or one that has ended: %v", ctx.Err())
			}
			if p.Message.UUID == "a/1" {
				panic("nobody listens")
			}
		}
		p := b.Start(config, func(msg *message.Message) error {
			switch msg.UUID {
			case "a/1":
				return postbox.Permanent(inboxtest.ErrHandler)
			case "b/1":
				return inboxtest.ErrHandler
			default:
				return nil
			}
		})
		b.Drained()
		p.Stop() // waits for it
		close(told)
		params := map[string]queue.Failure{}
		for p := range told {
			require.NotContains(t, params, p.Message.UUID)
			params[p.Message.UUID] = p
		}
		require.Len(t, params, 2)
		for id, attempts := range map[string]int{"a/1": 1, "b/1": 3} {
			require.Equal(t, "q", params[id].Queue)
			require.Equal(t, attempts, params[id].Attempts)
			require.ErrorIs(t, params[id].Err, inboxtest.ErrHandler)
			require.Equal(t, "payload of "+id, string(params[id].Message.Payload))
			require.Equal(t, id[:1], params[id].Message.Metadata.Get(postbox.MetadataOrderingKey))
		}
	})
}

// leftLog notes of how many calls the log says that a queue stopped without them.
type leftLog struct {
	watermill.NopLogger

	calls *atomic.Int64
}

func (l leftLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l leftLog) Error(_ string, _ error, fields watermill.LogFields) {
	if n, ok := fields["calls"].(int64); ok {
		l.calls.Add(n)
	}
}

// Also covers F24.
func TestQueue_G12_close_does_not_wait_for_an_OnDead_that_never_returns(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]int{"ends with its context": 0, "ignores its context": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := impatientBench(t, database)
				b.Put("1", "2")
				log := leftLog{calls: new(atomic.Int64)}
				b.Logger = log
				proceed := make(chan struct{})
				defer close(proceed)
				var entered atomic.Int32
				config := inboxtest.Quick(nil)
				config.OnDead = func(ctx context.Context, _ queue.Failure) {
					entered.Add(1)
					if left == 0 {
						_ = inboxtest.Hold(ctx, proceed)
						return
					}
					<-proceed
				}
				p := b.Start(config, func(*message.Message) error { return postbox.Permanent(inboxtest.ErrHandler) })
				b.Eventually(func() bool { return entered.Load() == 2 }, "both are told of")
				closed := make(chan struct{})
				go func() {
					defer close(closed)
					p.Stop()
				}()
				b.Await(closed, "the end")
				require.EqualValues(t, left, log.calls.Load())
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL"), "all lanes are free")
			})
		})
	}
}

// A parked message is not dead.
// Also covers feature N8.
func TestQueue_OnDead_is_not_called_for_a_parked_message(t *testing.T) {
	t.Parallel()
	b := newQueueBench(t, testdb.SQLite(t))
	b.Put("bad/1", "bad/2", "bad/3")
	config := inboxtest.Quick(func(c *queue.Config) { c.Park, c.Lease = true, time.Second })
	config.OnDead = func(context.Context, queue.Failure) { t.Error("it is not dead") }
	b.Start(config, func(*message.Message) error { return inboxtest.ErrHandler })
	b.parked(3)
}

// failing is an outbox that can be told to fail.
type failing struct {
	message.Publisher
	fails atomic.Bool
	tried chan struct{}
}

func (f *failing) PublishesInTx() bool { return true }

func (f *failing) Publish(topic string, messages ...*message.Message) error {
	if f.fails.Load() {
		select {
		case f.tried <- struct{}{}:
		default:
		}
		return errors.New("the outbox says no")
	}
	return f.Publisher.Publish(topic, messages...)
}

func TestQueue_buries_nothing_unless_PoisonOutbox_publishes_it_with_the_keys_of_Watermill(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("a/1")
		outbox := &failing{Publisher: b.outbox(), tried: make(chan struct{})}
		outbox.fails.Store(true)
		config := inboxtest.Quick(func(c *queue.Config) { c.Poison.Outbox, c.Poison.Topic = outbox, "poison" })
		var told atomic.Int32
		config.OnDead = func(context.Context, queue.Failure) { told.Add(1) }
		p := b.Start(config, func(*message.Message) error { return postbox.Permanent(inboxtest.ErrHandler) })
		for range 2 {
			b.Await(outbox.tried, "the outbox is tried")
		}
		require.Empty(t, b.Dead(), "not without the message")
		require.Equal(t, 1, b.Pending())
		require.Empty(t, b.Failures())
		require.Zero(t, told.Load())
		outbox.fails.Store(false)
		b.Drained()
		p.Stop()
		require.Equal(t, []string{"a/1"}, b.Dead())
		require.EqualValues(t, 1, told.Load())

		published := b.published()
		require.Equal(t, "a/1", published.UUID)
		require.Equal(t, "payload of a/1", string(published.Payload))
		require.Equal(t, message.Metadata{
			postbox.MetadataOrderingKey:        "a",
			wmmiddleware.ReasonForPoisonedKey:  inboxtest.ErrHandler.Error(),
			wmmiddleware.PoisonedTopicKey:      "q",
			wmmiddleware.PoisonedHandlerKey:    "q",
			wmmiddleware.PoisonedSubscriberKey: "queue.Subscriber",
		}, published.Metadata)
	})
}

// published returns the first message of the outbox, as it leaves for the broker.
func (b *queueBench) published() *message.Message {
	b.T.Helper()
	out := make(sink, 1)
	fwd, err := forwarder.New(b.On(b.Pool), out, forwarder.Config{}, nil)
	require.NoError(b.T, err)
	done := make(chan error, 1)
	go func() { done <- fwd.Run(context.Background()) }()
	defer func() {
		require.NoError(b.T, fwd.Close())
		require.NoError(b.T, <-done)
	}()
	select {
	case msg := <-out:
		return msg
	case <-time.After(inboxtest.Patience):
		require.FailNow(b.T, "nothing was published")
		return nil
	}
}

type sink chan *message.Message

func (s sink) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		s <- msg
	}
	return nil
}

func (s sink) Close() error { return nil }
