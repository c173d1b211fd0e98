package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Of ten messages one is acked, one has been taken and nine have not: they are all there for the
// next one. Also covers F1.
func TestQueue_G12_close_loses_nothing(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := keysOf(2, "a", "b", "c", "d", "e")
				b.Put(ids...)
				b.Store = inboxtest.StoreFor(t, database, b.Pool, func(c *inboxstore.Config) { c.CloseTimeout = 50 * time.Millisecond })
				subscriber, err := queue.NewSubscriber(b.Store, inboxtest.Quick(func(c *queue.Config) { c.Transactional = inTx }), nil)
				require.NoError(t, err)
				received, err := subscriber.Subscribe(t.Context(), "q")
				require.NoError(t, err)
				acked := <-received
				acked.Ack()
				taken := <-received
				require.NoError(t, subscriber.Close())
				require.ErrorIs(t, taken.Context().Err(), context.Canceled)
				taken.Ack() // too late: nobody listens
				_, open := <-received
				require.False(t, open)
				require.Equal(t, 9, b.Untried())
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ?", []byte(acked.UUID)))

				var rest inboxtest.Journal
				b.Start(inboxtest.Quick(nil), func(msg *message.Message) error {
					rest.Add(msg.UUID)
					return nil
				})
				b.Drained()
				require.ElementsMatch(t, ids, append(rest.All(), acked.UUID))
				require.Empty(t, b.Failures())
			})
		})
	}
}

// closings are the ways to end a subscription.
var closings = map[string]func(t *testing.T, p *inboxtest.Process, unsubscribe context.CancelFunc){
	"close": func(t *testing.T, p *inboxtest.Process, _ context.CancelFunc) {
		t.Helper()
		for range 2 {
			require.NoError(t, p.Close())
		}
	},
	"the end of the subscription's context": func(_ *testing.T, _ *inboxtest.Process, unsubscribe context.CancelFunc) { unsubscribe() },
}

// Also covers F24.
func TestQueue_G12_close_waits_for_handlers_and_hands_all_lanes_back(t *testing.T) {
	t.Parallel()
	for name, end := range closings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.Put("a/1", "a/2", "b/1", "c/1")
				subscriber, err := queue.NewSubscriber(b.Store, inboxtest.Quick(func(c *queue.Config) { c.Concurrency, c.Lease = 2, time.Second }), nil)
				require.NoError(t, err)
				ctx, unsubscribe := context.WithCancel(t.Context())
				received, err := subscriber.Subscribe(ctx, "q")
				require.NoError(t, err)
				good, bad := <-received, <-received
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					end(t, &inboxtest.Process{Subscriber: subscriber}, unsubscribe)
					for range received {
						t.Error("a message after the end of the subscription")
					}
				}()
				b.Renewed(2) // the process lives on, and so do its leases
				require.NoError(t, good.Context().Err())
				require.NoError(t, bad.Context().Err())
				good.Ack()
				queue.Fail(bad.Context(), inboxtest.ErrHandler)
				bad.Nack()
				b.Await(ended, "the end of the subscription")
				require.Equal(t, 3, b.Pending())
				require.Equal(t, 2, b.Untried())
				require.Equal(t, []string{inboxtest.ErrHandler.Error()}, b.Failures())
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL"))
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_members"))
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE suspect <> 0"), "a clean stop leaves no mark")
				require.NoError(t, subscriber.Close())
			})
		})
	}
}

func TestQueue_G12_handlers_are_cancelled_after_the_close_timeout(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("1")
		b.Store = inboxtest.StoreFor(t, database, b.Pool, func(c *inboxstore.Config) { c.CloseTimeout = 200 * time.Millisecond })
		entered := make(chan struct{})
		p := b.Start(inboxtest.Quick(nil), func(msg *message.Message) error {
			close(entered)
			<-msg.Context().Done()
			return msg.Context().Err()
		})
		b.Await(entered, "the handler")
		began := time.Now()
		p.Stop()
		require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
		require.Equal(t, 1, b.Untried(), "it is no fault of the message")
	})
}

// Watermill's router cancels its subscriptions first of all; the handlers go on in peace.
// Also covers F24.
func TestQueue_G12_router_closes_while_a_handler_runs(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("1")
		subscriber, err := queue.NewSubscriber(b.Store, inboxtest.Quick(inboxtest.Transactional), nil)
		require.NoError(t, err)
		entered, proceed := make(chan struct{}), make(chan struct{})
		watched := watchedSubscriber{subscriber, make(chan context.Context, 1)}
		router := b.route(watched, func(msg *message.Message) error {
			close(entered)
			if err := inboxtest.Hold(msg.Context(), proceed); err != nil {
				return err
			}
			return b.Effect(msg.Context(), msg)
		})
		b.Await(entered, "the handler")
		closed := make(chan error, 1)
		go func() { closed <- router.Close() }()
		b.Await((<-watched.contexts).Done(), "the end of the subscription's context")
		close(proceed)
		require.NoError(t, <-closed)
		require.Equal(t, []string{"1"}, b.Effects())
		require.Zero(t, b.Pending())
	})
}

// watchedSubscriber tells the context of the subscription.
type watchedSubscriber struct {
	*queue.Subscriber
	contexts chan context.Context
}

func (s watchedSubscriber) Subscribe(ctx context.Context, queue string) (<-chan *message.Message, error) {
	s.contexts <- ctx
	return s.Subscriber.Subscribe(ctx, queue)
}
