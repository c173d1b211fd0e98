package memstore_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/inboxstore/storetest"
	"github.com/postbox-go/watermill-postbox/internal/memstore"
	"github.com/postbox-go/watermill-postbox/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore_keeps_the_contract(t *testing.T) {
	t.Parallel()
	features := storetest.Features{Delays: true, RefusesWhenClosed: true}
	storetest.Run(t, features, func(*testing.T) storetest.Harness {
		store := memstore.New(memstore.Config{CloseTimeout: storetest.CloseTimeout})
		return storetest.Harness{
			Handle: storetest.Handle{Store: store, Subscriber: func(t *testing.T, retry postbox.RetryProfile) message.Subscriber {
				return subscriberFor(t, store, retry)
			}},
			DeadLetters: func(context.Context) ([]storetest.DeadLetter, error) { return letters(store), nil },
			Pending: func(_ context.Context, queue string) ([]storetest.Pending, error) {
				var pending []storetest.Pending
				for _, p := range store.Pending(queue) {
					pending = append(pending, storetest.Pending{MessageID: p.Message.UUID, Attempts: p.Attempts})
				}
				return pending, nil
			},
		}
	})
}

func subscriberFor(t *testing.T, store *memstore.Store, retry postbox.RetryProfile) *memstore.Subscriber {
	t.Helper()
	subscriber, err := store.Subscriber(retry)
	require.NoError(t, err)
	return subscriber
}

func letters(store *memstore.Store) []storetest.DeadLetter {
	var letters []storetest.DeadLetter
	for _, l := range store.DeadLetters() {
		letter := storetest.DeadLetter{
			Queue: l.Queue, Consumer: l.Key.Consumer, Topic: l.Key.Topic, MessageID: l.Message.UUID,
			Payload: l.Message.Payload, Metadata: l.Message.Metadata, Attempts: l.Attempts, Error: l.Err.Error(),
		}
		for _, failure := range l.Failures {
			letter.Failures = append(letter.Failures, failure.Error())
		}
		letters = append(letters, letter)
	}
	return letters
}

var errHandler = errors.New("handler says no")

func key(id string) inboxstore.Key { return inboxstore.Key{Consumer: "c", Topic: "t", MessageID: id} }

// storeFor returns a store with one message in queue "q".
func storeFor(t *testing.T, msg *message.Message) *memstore.Store {
	t.Helper()
	store := memstore.New(memstore.Config{CloseTimeout: -1})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	fresh, err := store.Defer(t.Context(), "q", key(msg.UUID), msg)
	require.NoError(t, err)
	require.True(t, fresh)
	return store
}

// requireNothing watches that no message comes.
func requireNothing(t *testing.T, messages <-chan *message.Message) {
	t.Helper()
	select {
	case msg := <-messages:
		require.Nil(t, msg, "it is not due")
	case <-time.After(50 * time.Millisecond):
	}
}

func TestStore_advance_makes_messages_due(t *testing.T) {
	t.Parallel()
	delayed := message.NewMessage("1", nil)
	delay.Message(delayed, delay.For(time.Hour))
	store := storeFor(t, delayed)
	messages, err := subscriberFor(t, store, postbox.RetryProfile{Attempts: 2, Base: time.Hour, Jitter: postbox.NoJitter}).Subscribe(t.Context(), "q")
	require.NoError(t, err)
	for range 2 { // the delay, and the pause after a failure
		requireNothing(t, messages)
		store.Advance(time.Hour - time.Minute)
		requireNothing(t, messages)
		store.Advance(time.Minute)
		(<-messages).Nack()
	}
	require.Eventually(t, func() bool { return len(store.DeadLetters()) == 1 }, 10*time.Second, time.Millisecond)
	letter := store.DeadLetters()[0]
	require.Equal(t, key("1"), letter.Key)
	require.ErrorIs(t, letter.Err, queue.ErrNacked)
	require.Empty(t, store.Pending("q"))
}

func TestStore_delay_until_a_time(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	msg := message.NewMessage("1", nil)
	msg.Metadata.Set(delay.DelayedUntilKey, until.Format(time.RFC3339))
	store := storeFor(t, msg)
	require.Equal(t, until, store.Pending("q")[0].Due)

	wrong := message.NewMessage("2", nil)
	wrong.Metadata.Set(delay.DelayedForKey, "soon")
	_, err := store.Defer(t.Context(), "q", key("2"), wrong)
	require.ErrorContains(t, err, delay.DelayedForKey)
	require.Len(t, store.Pending("q"), 1)
}

func TestStore_Pending_returns_copies(t *testing.T) {
	t.Parallel()
	store := storeFor(t, message.NewMessage("1", []byte("payload")))
	messages, err := subscriberFor(t, store, postbox.RetryProfile{Attempts: 1}).Subscribe(t.Context(), "q")
	require.NoError(t, err)
	pending := store.Pending("q")[0]
	pending.Message.Payload[0] = 'X'
	msg := <-messages
	require.Equal(t, "payload", string(msg.Payload))
	require.True(t, store.Pending("q")[0].InFlight)
	require.Equal(t, key("1"), pending.Key)
	msg.Nack()
	require.Eventually(t, func() bool { return len(store.DeadLetters()) == 1 }, 10*time.Second, time.Millisecond)
	letter := store.DeadLetters()[0]
	letter.Message.Payload[0], letter.Failures[0] = 'X', nil
	require.Equal(t, "payload", string(store.DeadLetters()[0].Message.Payload))
	require.Equal(t, []error{queue.ErrNacked}, store.DeadLetters()[0].Failures)
}

func TestStore_gives_no_transaction(t *testing.T) {
	t.Parallel()
	_, err := memstore.New(memstore.Config{}).Once(t.Context(), key("1"), func(ctx context.Context) error {
		_, found := postbox.TxFromContext(ctx)
		require.False(t, found)
		return nil
	})
	require.NoError(t, err)
}

func TestStore_close_ends_its_subscribers(t *testing.T) {
	t.Parallel()
	store := storeFor(t, message.NewMessage("1", nil))
	subscriber := subscriberFor(t, store, postbox.RetryProfile{})
	messages, err := subscriber.Subscribe(context.WithoutCancel(t.Context()), "q")
	require.NoError(t, err)
	<-messages // never acked
	require.NoError(t, store.Close())
	_, open := <-messages
	require.False(t, open)
	_, err = subscriber.Subscribe(t.Context(), "q")
	require.ErrorIs(t, err, postbox.ErrClosed)
	_, err = store.Subscriber(postbox.RetryProfile{})
	require.ErrorIs(t, err, postbox.ErrClosed)
	require.Len(t, store.Pending("q"), 1, "what was there can still be looked at")
}

func TestStore_a_test_that_ends_in_its_handler_leaves_the_claim_free(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = store.Once(t.Context(), key("1"), func(context.Context) error {
			runtime.Goexit() // as FailNow does
			return nil
		})
	}()
	<-ended
	fresh, err := store.Once(t.Context(), key("1"), func(context.Context) error { return errHandler })
	require.ErrorIs(t, err, errHandler)
	require.False(t, fresh)
}

func TestStore_bad_profile_says_what_is_wrong(t *testing.T) {
	t.Parallel()
	_, err := memstore.New(memstore.Config{}).Subscriber(postbox.RetryProfile{Attempts: -5, Base: -1})
	require.ErrorContains(t, err, "postbox.Unlimited")
	require.ErrorContains(t, err, "Base and Cap")
}

func TestStore_refuses_a_queue_that_a_database_would_refuse(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	t.Cleanup(func() { _ = store.Close() })
	_, err := store.Defer(t.Context(), "", inboxstore.Key{MessageID: "1"}, message.NewMessage("1", nil))
	require.ErrorContains(t, err, "the queue has no name")
	_, err = subscriberFor(t, store, postbox.RetryProfile{}).Subscribe(t.Context(), "")
	require.ErrorContains(t, err, "the queue has no name")
}
