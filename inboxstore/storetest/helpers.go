package storetest

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
)

const (
	// patience bounds the wait for an event that must happen: far longer than it takes on a busy
	// machine.
	patience = 30 * time.Second
	// silence is how long the suite watches that an event does not happen.
	silence = 150 * time.Millisecond
	// pollPause is the pause between two polls.
	pollPause = 5 * time.Millisecond
	// attempts is the number of attempts of a message before it is a dead letter.
	attempts = 3
	// queue is the queue that most cases use.
	queue = "queue"
)

var errFn = errors.New("fn says no")

// briefly is the profile of most cases: its pauses are short enough for tests.
func briefly() postbox.RetryProfile {
	return postbox.RetryProfile{Attempts: attempts, Base: time.Millisecond, Cap: 5 * time.Millisecond}
}

// hourly is for cases in which a message that failed must not come again.
func hourly() postbox.RetryProfile {
	return postbox.RetryProfile{Attempts: attempts, Base: time.Hour, Cap: time.Hour, Jitter: -1}
}

// keyOf returns the key of a message for one consumer.
func keyOf(id string) inboxstore.Key {
	return inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: id}
}

func succeed(context.Context) error { return nil }

func fail(context.Context) error { return errFn }

// patient returns a context that ends calls of a store that hangs.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open returns another handle, which is closed with the test.
func (h Harness) open(t *testing.T) Handle {
	t.Helper()
	handle := h.Open(t)
	t.Cleanup(func() { require.NoError(t, handle.Store.Close()) })
	return handle
}

// claimed reports whether the key has a committed claim. It leaves a free key free.
func claimed(t *testing.T, store Store, key inboxstore.Key) bool {
	t.Helper()
	fresh, err := store.Once(patient(t), key, fail)
	if err == nil {
		require.False(t, fresh, "fn failed, and Once does not say so")
		return true
	}
	require.ErrorIs(t, err, errFn)
	return false
}

// requireFresh handles the key for the first time.
func requireFresh(t *testing.T, store Store, key inboxstore.Key, why string) {
	t.Helper()
	ran := false
	fresh, err := store.Once(patient(t), key, func(context.Context) error {
		ran = true
		return nil
	})
	require.NoError(t, err, why)
	require.True(t, fresh, why)
	require.True(t, ran, "fn must run where the key is fresh")
}

// attempt is the result of a call of Once.
type attempt struct {
	fresh    bool
	err      error
	panicked any
}

// claim calls Once in a goroutine, which may panic.
func claim(ctx context.Context, store Store, key inboxstore.Key, fn func(context.Context) error) <-chan attempt {
	ended := make(chan attempt, 1)
	go func() {
		var a attempt
		defer func() {
			a.panicked = recover()
			ended <- a
		}()
		a.fresh, a.err = store.Once(ctx, key, fn)
	}()
	return ended
}

// receive returns the next value of a channel, and fails if none comes in time.
func receive[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case got, ok := <-ch:
		require.True(t, ok, "%s: the channel was closed", what)
		return got
	case <-time.After(patience):
		require.FailNow(t, what+": nothing came in time")
	}
	panic("unreachable")
}

// requireQuiet checks that no value comes through a channel for a while.
func requireQuiet[T any](t *testing.T, ch <-chan T, why string) {
	t.Helper()
	select {
	case got, ok := <-ch:
		require.Fail(t, why, "came: %v (open: %t)", got, ok)
	case <-time.After(silence):
	}
}

// requireEnd waits for a channel of signals to be closed.
func requireEnd(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		require.FailNow(t, what+": not in time")
	}
}

// eventually polls, in the goroutine of the test, so that condition may end it.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-time.After(pollPause):
		case <-deadline:
			require.FailNow(t, what+": not in time")
		}
	}
}

// deferred stores a message in the queue. An empty ordering key means no key.
func deferred(t *testing.T, store Store, id, orderingKey string) {
	t.Helper()
	fresh, err := store.Defer(patient(t), queue, keyOf(id), newMessage(id, orderingKey))
	require.NoError(t, err)
	require.True(t, fresh)
}

func newMessage(id, orderingKey string) *message.Message {
	msg := message.NewMessage(id, []byte("payload of "+id))
	msg.Metadata.Set("about", id)
	if orderingKey != "" {
		msg.Metadata.Set(postbox.MetadataOrderingKey, orderingKey)
	}
	return msg
}

// subscriber returns a subscriber that is closed with the test.
func (h Handle) subscriber(t *testing.T, retry postbox.RetryProfile) message.Subscriber {
	t.Helper()
	subscriber := h.Subscriber(t, retry)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) })
	return subscriber
}

// subscribe receives the messages of the queue until the test ends.
func (h Handle) subscribe(t *testing.T, retry postbox.RetryProfile) <-chan *message.Message {
	t.Helper()
	messages, err := h.subscriber(t, retry).Subscribe(t.Context(), queue)
	require.NoError(t, err)
	return messages
}

// receiveAll takes this number of messages without acking them and returns them by UUID.
func receiveAll(t *testing.T, messages <-chan *message.Message, count int) map[string]*message.Message {
	t.Helper()
	got := map[string]*message.Message{}
	for range count {
		msg := receive(t, messages, "a message from the queue")
		require.NotContains(t, got, msg.UUID, "it was handed out already")
		got[msg.UUID] = msg
	}
	return got
}

// receiveJust takes these messages, in any order, without acking them.
func receiveJust(t *testing.T, messages <-chan *message.Message, ids ...string) map[string]*message.Message {
	t.Helper()
	got := receiveAll(t, messages, len(ids))
	for _, id := range ids {
		require.Contains(t, got, id)
	}
	return got
}

// pending returns the ids of the messages of a queue that are neither done nor dead.
func (h Harness) pending(t *testing.T, queue string) []string {
	t.Helper()
	found, err := h.Pending(patient(t), queue)
	require.NoError(t, err)
	ids := make([]string, len(found))
	for i, p := range found {
		ids[i] = p.MessageID
	}
	return ids
}

// requireDrained waits until no message of a queue is pending.
func (h Harness) requireDrained(t *testing.T, queue string) {
	t.Helper()
	eventually(t, "all of the queue is done or dead", func() bool { return len(h.pending(t, queue)) == 0 })
}

// requirePending waits until exactly these messages are pending, with these failures.
func (h Harness) requirePending(t *testing.T, want ...Pending) {
	t.Helper()
	var found []Pending
	deadline := time.Now().Add(patience)
	for ; time.Now().Before(deadline); <-time.After(pollPause) {
		var err error
		found, err = h.Pending(patient(t), queue)
		require.NoError(t, err)
		if slices.Equal(want, found) {
			return
		}
	}
	require.Equal(t, want, found, "pending messages")
}

// letters returns the dead letters.
func (h Harness) letters(t *testing.T) []DeadLetter {
	t.Helper()
	letters, err := h.DeadLetters(patient(t))
	require.NoError(t, err)
	return letters
}

// letter returns the one dead letter.
func (h Harness) letter(t *testing.T) DeadLetter {
	t.Helper()
	letters := h.letters(t)
	require.Len(t, letters, 1, "dead letters")
	return letters[0]
}

// requireClosed closes, and fails if that does not end in time.
func requireClosed(t *testing.T, closers ...io.Closer) {
	t.Helper()
	for _, closer := range closers {
		ended := make(chan error, 1)
		go func() { ended <- closer.Close() }()
		require.NoError(t, receive(t, ended, "Close"))
	}
}
