package inboxstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Of ten messages one is acked, one has been taken and nine have not: they are all there for the next one.
func TestQueue_F1_G12_close_loses_nothing(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := keysOf(2, "a", "b", "c", "d", "e")
				b.put(ids...)
				b.store = storeFor(t, database, b.db, func(c *inboxstore.Config) { c.CloseTimeout = 50 * time.Millisecond })
				subscriber, err := inboxstore.NewSubscriber(b.store, quick(func(c *inboxstore.QueueConfig) { c.Transactional = inTx }), nil)
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
				require.Equal(t, 9, b.untried())
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ?", []byte(acked.UUID)))

				var rest journal
				b.start(quick(nil), func(msg *message.Message) error {
					rest.add(msg.UUID)
					return nil
				})
				b.drained()
				require.ElementsMatch(t, ids, append(rest.all(), acked.UUID))
				require.Empty(t, b.failures())
			})
		})
	}
}

// closings are the ways to end a subscription.
var closings = map[string]func(t *testing.T, p *queueProcess, unsubscribe context.CancelFunc){
	"close": func(t *testing.T, p *queueProcess, _ context.CancelFunc) {
		t.Helper()
		for range 2 {
			require.NoError(t, p.Close())
		}
	},
	"the end of the subscription's context": func(_ *testing.T, _ *queueProcess, unsubscribe context.CancelFunc) { unsubscribe() },
}

func TestQueue_G12_F24_end_waits_for_handlers_and_hands_everything_back(t *testing.T) {
	t.Parallel()
	for name, end := range closings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.put("a/1", "a/2", "b/1", "c/1")
				subscriber, err := inboxstore.NewSubscriber(b.store, quick(func(c *inboxstore.QueueConfig) { c.Concurrency, c.Lease = 2, time.Second }), nil)
				require.NoError(t, err)
				ctx, unsubscribe := context.WithCancel(t.Context())
				received, err := subscriber.Subscribe(ctx, "q")
				require.NoError(t, err)
				good, bad := <-received, <-received
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					end(t, &queueProcess{Subscriber: subscriber}, unsubscribe)
					for range received {
						t.Error("a message after the end of the subscription")
					}
				}()
				b.renewed(2) // the process lives on, and so do its leases
				require.NoError(t, good.Context().Err())
				require.NoError(t, bad.Context().Err())
				good.Ack()
				inboxstore.Fail(bad.Context(), errHandler)
				bad.Nack()
				b.await(ended, "the end of the subscription")
				require.Equal(t, 3, b.pending())
				require.Equal(t, 2, b.untried())
				require.Equal(t, []string{errHandler.Error()}, b.failures())
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL OR expires_at > 0"))
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_members"))
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE suspect <> 0"), "a clean stop leaves no suspicion")
				require.NoError(t, subscriber.Close())
			})
		})
	}
}

func TestQueue_G12_handlers_are_cancelled_after_the_close_timeout(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("1")
		b.store = storeFor(t, database, b.db, func(c *inboxstore.Config) { c.CloseTimeout = 200 * time.Millisecond })
		entered := make(chan struct{})
		p := b.start(quick(nil), func(msg *message.Message) error {
			close(entered)
			<-msg.Context().Done()
			return msg.Context().Err()
		})
		b.await(entered, "the handler")
		began := time.Now()
		p.close()
		require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
		require.Equal(t, 1, b.untried(), "it is no fault of the message")
	})
}

// Watermill's router cancels its subscriptions first of all; the handlers go on in peace.
func TestQueue_G12_F24_router_closes_under_a_handler(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("1")
		subscriber, err := inboxstore.NewSubscriber(b.store, quick(transactional), nil)
		require.NoError(t, err)
		entered, proceed := make(chan struct{}), make(chan struct{})
		watched := watchedSubscriber{subscriber, make(chan context.Context, 1)}
		router := b.route(watched, func(msg *message.Message) error {
			close(entered)
			if err := hold(msg.Context(), proceed); err != nil {
				return err
			}
			return b.effect(msg.Context(), msg)
		})
		b.await(entered, "the handler")
		closed := make(chan error, 1)
		go func() { closed <- router.Close() }()
		b.await((<-watched.contexts).Done(), "the end of the subscription's context")
		close(proceed)
		require.NoError(t, <-closed)
		require.Equal(t, []string{"1"}, b.effects())
		require.Zero(t, b.pending())
	})
}

// watchedSubscriber tells the context of the subscription.
type watchedSubscriber struct {
	*inboxstore.Subscriber
	contexts chan context.Context
}

func (s watchedSubscriber) Subscribe(ctx context.Context, queue string) (<-chan *message.Message, error) {
	s.contexts <- ctx
	return s.Subscriber.Subscribe(ctx, queue)
}

func TestQueue_handler_timeout_cancels_the_context_and_waits(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("a/1", "a/2")
		cancelled, proceed := make(chan struct{}), make(chan struct{})
		var journal journal
		b.start(quick(func(c *inboxstore.QueueConfig) { c.HandlerTimeout, c.Lease = 50*time.Millisecond, time.Second }), func(msg *message.Message) error {
			if journal.add(msg.UUID) > 1 || msg.UUID == "a/2" {
				return nil
			}
			ctx := msg.Context()
			<-ctx.Done()
			close(cancelled)
			<-proceed
			return ctx.Err()
		})
		b.await(cancelled, "the context's end")
		b.renewed(2)
		require.Equal(t, []string{"a/1"}, journal.all(), "nobody handles it, or what is behind it, meanwhile")
		require.Equal(t, 2, b.untried())
		close(proceed)
		b.drained()
		require.Equal(t, []string{"a/1", "a/1", "a/2"}, journal.all())
		require.Equal(t, []string{context.DeadlineExceeded.Error()}, b.failures())
	})
}

// What waits for somebody to take it is not being handled.
func TestQueue_handler_timeout_begins_with_the_handler(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("1")
		config := quick(func(c *inboxstore.QueueConfig) { c.HandlerTimeout, c.Lease = 300*time.Millisecond, time.Second })
		subscriber, err := inboxstore.NewSubscriber(b.store, config, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, subscriber.Close()) }()
		received, err := subscriber.Subscribe(t.Context(), "q")
		require.NoError(t, err)
		b.eventually(func() bool { return b.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL") > 0 }, "it is read")
		b.renewed(2) // much longer than the time-out
		msg := <-received
		require.NoError(t, msg.Context().Err())
		<-msg.Context().Done()
		require.ErrorIs(t, context.Cause(msg.Context()), context.DeadlineExceeded)
		require.NotErrorIs(t, msg.Context().Err(), context.Canceled, "no more than with a deadline")
		msg.Ack()
		b.drained()
	})
}
