package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// G3: of each ordering key one message at a time is handed out, the oldest. Other keys, and
// messages without a key, are handed out concurrently.
func testOneAtATimeByKey(t *testing.T, h Harness) {
	for _, m := range [][2]string{{"a1", "a"}, {"a2", "a"}, {"b1", "b"}, {"b2", "b"}, {"none1", ""}, {"none2", ""}} {
		deferred(t, h.Store, m[0], m[1])
	}
	messages := h.subscribe(t, briefly())
	got := receiveJust(t, messages, "a1", "b1", "none1", "none2")
	requireQuiet(t, messages, "a message was handed out while the one before it in its key is being handled")
	got["b1"].Ack()
	receive(t, messages, "the next of key b").Ack()
	got["a1"].Ack()
	next := receive(t, messages, "the next of key a")
	require.Equal(t, "a2", next.UUID)
	for _, msg := range []*message.Message{next, got["none1"], got["none2"]} {
		msg.Ack()
	}
	h.requireDrained(t, queue)
}

// G3: messages of a key are handled in the order in which they were stored, even if some fail at
// first.
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
			deferred(t, handles[i%len(handles)].Store, id, key)
		}
	}
	w := &worker{t: t, left: keys * each, done: make(chan struct{}), failed: map[string]bool{}, running: map[string]string{}, handled: map[string][]string{}}
	for _, handle := range handles {
		messages := handle.subscribe(t, briefly())
		go w.work(messages)
	}
	requireEnd(t, w.done, "all messages are handled")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(t, want, w.handled)
	h.requireDrained(t, queue)
	require.Empty(t, h.letters(t))
}

// worker handles messages, each in a goroutine of its own, and fails every message whose number
// ends in 7 once.
type worker struct {
	t    *testing.T
	done chan struct{} // closed when no message is left

	mu      sync.Mutex
	left    int
	failed  map[string]bool
	running map[string]string   // message, by ordering key
	handled map[string][]string // messages, by ordering key
}

func (w *worker) work(messages <-chan *message.Message) {
	for msg := range messages {
		key := msg.Metadata.Get(postbox.MetadataOrderingKey)
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
