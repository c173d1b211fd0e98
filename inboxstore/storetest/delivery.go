package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// G3: of one ordering key one message at a time is handed out, the oldest. Other keys, and messages without a key, go
// beside it.
func testOneAtATimeByKey(t *testing.T, h Harness) {
	for _, m := range [][2]string{{"a1", "a"}, {"a2", "a"}, {"b1", "b"}, {"b2", "b"}, {"none1", ""}, {"none2", ""}} {
		deferred(t, h.Store, "queue", m[0], m[1])
	}
	messages := h.subscribe(t, briefly(), "queue")
	got := receiveAll(t, messages, 4)
	for _, id := range []string{"a1", "b1", "none1", "none2"} {
		require.Contains(t, got, id)
	}
	requireQuiet(t, messages, "a message was handed out while the one before it in its key is being handled")
	got["b1"].Ack()
	receive(t, messages, "the next of key b").Ack()
	got["a1"].Ack()
	next := receive(t, messages, "the next of key a")
	require.Equal(t, "a2", next.UUID)
	for _, msg := range []*message.Message{next, got["none1"], got["none2"]} {
		msg.Ack()
	}
	h.requireDrained(t, "queue")
}

// G3: messages of a key are handled in the order in which they were stored, also when some fail at first.
func testOldestFirst(t *testing.T, h Harness) { requireOldestFirst(t, h, h.Handle) }

// G3: the same when two processes share the queue.
func testOldestFirstAcrossHandles(t *testing.T, h Harness) {
	requireOldestFirst(t, h, h.Handle, h.open(t))
}

func requireOldestFirst(t *testing.T, h Harness, handles ...Handle) {
	t.Helper()
	const keys, each = 5, 12
	want := map[string][]string{}
	for i := range each {
		for k := range keys {
			key, id := fmt.Sprint("key ", k), fmt.Sprintf("%d-%02d", k, i)
			want[key] = append(want[key], id)
			deferred(t, handles[i%len(handles)].Store, "queue", id, key)
		}
	}
	w := &worker{t: t, left: keys * each, done: make(chan struct{}), failed: map[string]bool{}, running: map[string]string{}, handled: map[string][]string{}}
	for _, handle := range handles {
		go w.work(handle.subscribe(t, briefly(), "queue"))
	}
	requireEnd(t, w.done, "all messages are handled")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, want, w.handled)
	h.requireDrained(t, "queue")
	require.Empty(t, h.letters(t))
}

// worker handles messages, each in a goroutine of its own, and fails each seventh of them once.
type worker struct {
	t    *testing.T
	done chan struct{} // closed when nothing is left

	mu      sync.Mutex
	left    int
	failed  map[string]bool
	running map[string]string   // message by ordering key
	handled map[string][]string // messages by ordering key
}

func (w *worker) work(messages <-chan *message.Message) {
	for msg := range messages {
		key := msg.Metadata.Get(postbox.OrderingKey)
		w.mu.Lock()
		if other := w.running[key]; other != "" {
			w.t.Errorf("%s and %s of %s are handled at a time", other, msg.UUID, key)
		}
		w.running[key] = msg.UUID
		w.mu.Unlock()
		go w.handle(msg, key)
	}
}

func (w *worker) handle(msg *message.Message, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, key)
	if strings.HasSuffix(msg.UUID, "7") && !w.failed[msg.UUID] {
		w.failed[msg.UUID] = true
		msg.Nack()
		return
	}
	w.handled[key] = append(w.handled[key], msg.UUID)
	if w.left--; w.left == 0 {
		close(w.done)
	}
	msg.Ack()
}

// A nacked message comes again as it was stored, whatever its handler did to it, and its key waits for it.
func testNack(t *testing.T, h Harness) {
	deferred(t, h.Store, "queue", "1", "key")
	deferred(t, h.Store, "queue", "2", "key")
	messages := h.subscribe(t, briefly(), "queue")
	for attempt := range attempts {
		msg := receive(t, messages, "the message")
		require.Equal(t, "1", msg.UUID, "its key waits")
		require.Equal(t, newMessage("1", "key").Payload, msg.Payload)
		require.Equal(t, newMessage("1", "key").Metadata, msg.Metadata)
		if attempt == attempts-1 {
			msg.Ack()
			break
		}
		msg.Payload[0] = 'X'
		msg.Metadata.Set("about", "something else")
		msg.Nack()
	}
	msg := receive(t, messages, "the next of the key")
	require.Equal(t, "2", msg.UUID)
	msg.Ack()
	h.requireDrained(t, "queue")
	require.Empty(t, h.letters(t))
}

// F11: while a message waits for its next attempt its key waits, and all others flow, later messages too.
func testFailingKeyWaits(t *testing.T, h Harness) {
	for _, m := range [][2]string{{"a1", "a"}, {"a2", "a"}, {"b1", "b"}, {"b2", "b"}, {"none1", ""}} {
		deferred(t, h.Store, "queue", m[0], m[1])
	}
	messages := h.subscribe(t, hourly(), "queue")
	got := receiveAll(t, messages, 3)
	require.Contains(t, got, "a1")
	got["a1"].Nack()
	got["b1"].Ack()
	got["none1"].Ack()
	receive(t, messages, "the second of key b").Ack()
	deferred(t, h.Store, "queue", "a3", "a")
	deferred(t, h.Store, "queue", "b3", "b")
	msg := receive(t, messages, "what was stored later")
	require.Equal(t, "b3", msg.UUID)
	msg.Ack()
	eventually(t, "key b is done", func() bool { return len(h.pending(t, "queue")) == 3 })
	requireQuiet(t, messages, "a message was handed out before its next attempt, or past one that failed")
	found, err := h.Pending(patient(t), "queue")
	require.NoError(t, err)
	require.Equal(t, []Pending{{MessageID: "a1", Attempts: 1}, {MessageID: "a2"}, {MessageID: "a3"}}, found)
}

// After the last attempt a message is a dead letter with its payload, its metadata and an entry for each attempt. Then
// its key goes on. It does not come back, not even when the broker delivers it again.
func testDeadAfterAttempts(t *testing.T, h Harness) {
	deferred(t, h.Store, "queue", "1", "key")
	deferred(t, h.Store, "queue", "2", "key")
	messages := h.subscribe(t, briefly(), "queue")
	for range attempts {
		msg := receive(t, messages, "another attempt")
		require.Equal(t, "1", msg.UUID)
		msg.Nack()
	}
	msg := receive(t, messages, "the next of the key")
	require.Equal(t, "2", msg.UUID, "the first one has had its attempts")
	msg.Ack()
	h.requireDrained(t, "queue")

	letter := h.letter(t)
	require.Equal(t, "queue", letter.Queue)
	require.Equal(t, "1", letter.MessageID)
	require.Equal(t, []byte(newMessage("1", "").Payload), letter.Payload)
	require.Equal(t, newMessage("1", "key").Metadata, letter.Metadata)
	require.Equal(t, attempts, letter.Attempts)
	require.Len(t, letter.Failures, attempts)
	require.NotEmpty(t, letter.Error)
	require.True(t, claimed(t, h.Store, keyOf("1")))
	requireQuiet(t, messages, "a dead message was handed out")
}

// F14: attempts belong to the message, not to whoever subscribes.
func testAttemptsAcrossSubscriptions(t *testing.T, h Harness) {
	deferred(t, h.Store, "queue", "1", "key")
	for range attempts {
		subscriber := h.subscriber(t, briefly())
		messages, err := subscriber.Subscribe(t.Context(), "queue")
		require.NoError(t, err)
		receive(t, messages, "another attempt").Nack()
		requireClosed(t, subscriber)
	}
	require.Empty(t, h.pending(t, "queue"))
	require.Equal(t, attempts, h.letter(t).Attempts)
}

// As with any subscriber of Watermill, the context of a message lives until it is acked or nacked, and no longer.
func testContextEndsWithAck(t *testing.T, h Harness) {
	deferred(t, h.Store, "queue", "acked", "")
	deferred(t, h.Store, "queue", "nacked", "")
	got := receiveAll(t, h.subscribe(t, hourly(), "queue"), 2)
	for id, answer := range map[string]func(*message.Message) bool{"acked": (*message.Message).Ack, "nacked": (*message.Message).Nack} {
		msg := got[id]
		requireQuiet(t, msg.Context().Done(), id+": its context ended before")
		answer(msg)
		requireEnd(t, msg.Context().Done(), id+": the end of its context")
	}
}

// F1: what is not acked when a subscription closes is still there, with all its attempts, and nothing else is.
func testCloseLosesNothing(t *testing.T, h Harness) {
	requireNothingLost(t, h, func(subscriber message.Subscriber, _ context.CancelFunc) { requireClosed(t, subscriber) })
}

// F1: the same where the context of Subscribe ends. The subscriber can subscribe again.
func testContextEndLosesNothing(t *testing.T, h Harness) {
	requireNothingLost(t, h, func(_ message.Subscriber, cancel context.CancelFunc) { cancel() })
}

func requireNothingLost(t *testing.T, h Harness, end func(subscriber message.Subscriber, cancel context.CancelFunc)) {
	t.Helper()
	var want []string
	for i := range 10 {
		id := fmt.Sprint(i)
		deferred(t, h.Store, "queue", id, []string{"", "even", "odd"}[min(i/4, 1)*(1+i%2)]) // the first four have no key
		want = append(want, id)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	subscriber := h.subscriber(t, briefly())
	messages, err := subscriber.Subscribe(ctx, "queue")
	require.NoError(t, err)
	got := receiveAll(t, messages, 3)
	var acked string
	for id, msg := range got {
		if msg.Metadata.Get(postbox.OrderingKey) == "" {
			acked = id
			msg.Ack()
			break
		}
	}
	end(subscriber, cancel)
	requireNoMore(t, messages)
	for id, msg := range got {
		requireEnd(t, msg.Context().Done(), id+": the end of its context")
	}
	var left []Pending
	for _, id := range want {
		if id != acked {
			left = append(left, Pending{MessageID: id}) // a subscription that ends is no failed attempt
		}
	}
	found, err := h.Pending(patient(t), "queue")
	require.NoError(t, err)
	require.Equal(t, left, found)
	require.Empty(t, h.letters(t))

	messages = h.subscribe(t, briefly(), "queue")
	for range left {
		receive(t, messages, "what was not acked").Ack()
	}
	h.requireDrained(t, "queue")
}

// requireNoMore waits for a subscription to close its channel. What comes before was underway.
func requireNoMore(t *testing.T, messages <-chan *message.Message) {
	t.Helper()
	eventually(t, "the end of the subscription", func() bool {
		select {
		case _, open := <-messages:
			return !open
		default:
			return false
		}
	})
}

// G12: who has a message when its subscription ends may end handling it, in a live context, within the close timeout.
func testAckAfterEnd(t *testing.T, h Harness) {
	deferred(t, h.Store, "queue", "acked", "")
	deferred(t, h.Store, "queue", "nacked", "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	messages, err := h.subscriber(t, hourly()).Subscribe(ctx, "queue")
	require.NoError(t, err)
	got := receiveAll(t, messages, 2)
	cancel()
	requireQuiet(t, got["acked"].Context().Done(), "a message's context must outlive the subscription")
	got["acked"].Ack()
	got["nacked"].Nack()
	requireNoMore(t, messages)
	found, err := h.Pending(patient(t), "queue")
	require.NoError(t, err)
	require.Equal(t, []Pending{{MessageID: "nacked", Attempts: 1}}, found)
}

// Close of a subscriber is idempotent, closes its channels, and lets nobody subscribe.
func testCloseSubscriber(t *testing.T, h Harness) {
	subscriber := h.subscriber(t, briefly())
	one, err := subscriber.Subscribe(t.Context(), "one")
	require.NoError(t, err)
	two, err := subscriber.Subscribe(t.Context(), "two")
	require.NoError(t, err)
	ends := make([]chan error, 3)
	for i := range ends {
		ends[i] = make(chan error, 1)
		go func() { ends[i] <- subscriber.Close() }()
	}
	for _, end := range ends {
		require.NoError(t, receive(t, end, "Close"))
	}
	for _, messages := range []<-chan *message.Message{one, two} {
		select {
		case _, open := <-messages:
			require.False(t, open)
		default:
			require.Fail(t, "Close has returned and a channel is open")
		}
	}
	_, err = subscriber.Subscribe(t.Context(), "one")
	require.ErrorIs(t, err, postbox.ErrClosed)
}
