package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// G5: when Defer has returned, the message is stored once, however often it is delivered: also at
// the same time, and also after it was handled.
func testDeferOnce(t *testing.T, h Harness) {
	deferred(t, h.Store, "1", "")
	require.Equal(t, []string{"1"}, h.pending(t, queue))
	again := func() {
		t.Helper()
		fresh, err := h.Store.Defer(patient(t), queue, keyOf("1"), newMessage("1", ""))
		require.NoError(t, err)
		require.False(t, fresh)
	}
	again()
	require.Equal(t, []string{"1"}, h.pending(t, queue))
	receive(t, h.subscribe(t, briefly()), "the message").Ack()
	h.requireDrained(t, queue)
	again()
	require.Empty(t, h.pending(t, queue))

	requireFresh(t, h.Store, keyOf("handled"), "it is not claimed")
	fresh, err := h.Store.Defer(patient(t), queue, keyOf("handled"), newMessage("handled", ""))
	require.NoError(t, err)
	require.False(t, fresh, "what was handled is not deferred")
	require.Empty(t, h.pending(t, queue))

	var wg sync.WaitGroup
	ctx := patient(t)
	for range concurrency {
		wg.Go(func() {
			if _, err := h.Store.Defer(ctx, "crowd", keyOf("crowd"), newMessage("crowd", "")); err != nil {
				t.Errorf("defer: %s", err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, []string{"crowd"}, h.pending(t, "crowd"))
}

// A queue returns messages unchanged, with everything that Watermill accepts: any bytes, 10 kB of
// id, no payload, no metadata.
func testDeferAnyBytes(t *testing.T, h Harness) {
	hard, bare := anyBytesMessage(), &message.Message{UUID: "bare"}
	for _, msg := range []*message.Message{hard, bare} {
		fresh, err := h.Store.Defer(patient(t), queue, keyOf(msg.UUID), msg)
		require.NoError(t, err)
		require.True(t, fresh)
	}
	got := receiveJust(t, h.subscribe(t, briefly()), hard.UUID, "bare")
	require.Equal(t, hard.Payload, got[hard.UUID].Payload)
	require.Equal(t, hard.Metadata, got[hard.UUID].Metadata)
	require.Empty(t, got["bare"].Payload)
	require.Empty(t, got["bare"].Metadata)
	require.NotNil(t, got["bare"].Metadata, "a handler may call Set, as with a message of any other subscriber")
	for _, msg := range got {
		msg.Ack()
	}
}

// The caller may go on using a message after Defer has returned.
func testDeferCopies(t *testing.T, h Harness) {
	msg := newMessage("1", "")
	_, err := h.Store.Defer(patient(t), queue, keyOf("1"), msg)
	require.NoError(t, err)
	msg.Payload[0] = 'X'
	msg.Metadata.Set("about", "something else")
	got := receive(t, h.subscribe(t, briefly()), "the message")
	require.Equal(t, newMessage("1", "").Payload, got.Payload)
	require.Equal(t, newMessage("1", "").Metadata, got.Metadata)
	got.Ack()
}

// The key identifies messages, and may differ from the UUID: broker coordinates, or a business
// number. The handler gets the message that was delivered.
func testDeferKeepsUUID(t *testing.T, h Harness) {
	_, err := h.Store.Defer(patient(t), queue, keyOf("orders/3/42"), newMessage("uuid", ""))
	require.NoError(t, err)
	got := receive(t, h.subscribe(t, briefly()), "the message")
	require.Equal(t, "uuid", got.UUID)
	got.Ack()
}

// Kafka records of other producers have no UUID. The message id of the key is handed out in its
// place.
func testDeferWithoutUUID(t *testing.T, h Harness) {
	fresh, err := h.Store.Defer(patient(t), queue, keyOf("orders/3/42"), newMessage("", ""))
	require.NoError(t, err)
	require.True(t, fresh)
	got := receive(t, h.subscribe(t, briefly()), "the message")
	require.Equal(t, "orders/3/42", got.UUID)
	got.Ack()
}

// Two queues are independent. Both may contain the same message, under two consumers.
func testQueuesAreApart(t *testing.T, h Harness) {
	for _, queue := range []string{"one", "two"} {
		key := inboxstore.Key{Consumer: "queue " + queue, Topic: "orders", MessageID: "1"}
		fresh, err := h.Store.Defer(patient(t), queue, key, newMessage("1", "key"))
		require.NoError(t, err)
		require.True(t, fresh)
	}
	subscriber := h.subscriber(t, briefly())
	one, err := subscriber.Subscribe(t.Context(), "one")
	require.NoError(t, err)
	held := receive(t, one, "the message of queue one")
	two, err := subscriber.Subscribe(t.Context(), "two")
	require.NoError(t, err)
	receive(t, two, "the message of queue two, which waits for none of another queue").Ack()
	h.requireDrained(t, "two")
	require.Equal(t, []string{"1"}, h.pending(t, "one"))
	held.Ack()
	h.requireDrained(t, "one")
}

// A message with the metadata of Watermill's components/delay is not handed out before its time. It
// holds back no other message, not even of its key. A delay that cannot be read is a permanent
// error, since no other delivery could be stored either.
func testDelay(t *testing.T, h Harness) {
	const pause = 300 * time.Millisecond
	started := time.Now()
	for id, wait := range map[string]time.Duration{"hour": time.Hour, "moment": pause} {
		msg := newMessage(id, "key")
		delay.Message(msg, delay.For(wait))
		fresh, err := h.Store.Defer(patient(t), queue, keyOf(id), msg)
		require.NoError(t, err)
		require.True(t, fresh)
	}
	deferred(t, h.Store, "now", "key")
	messages := h.subscribe(t, briefly())
	for range 2 {
		got := receive(t, messages, "a message that is due")
		require.NotEqual(t, "hour", got.UUID)
		require.True(t, got.UUID == "now" || time.Since(started) >= pause, "it came before its time")
		got.Ack()
	}
	requireQuiet(t, messages, "the other one is not due")
	unreadable := newMessage("unreadable", "")
	unreadable.Metadata.Set(delay.DelayedForKey, "soon")
	_, err := h.Store.Defer(patient(t), queue, keyOf("unreadable"), unreadable)
	require.ErrorIs(t, err, postbox.ErrPermanent)
	h.requirePending(t, Pending{MessageID: "hour"})
}

// G2: claims, failures, dead letters and queues are still stored when the store is opened again.
func testPersistence(t *testing.T, h Harness) {
	requireFresh(t, h.Store, keyOf("handled"), "it is not claimed")
	_, err := h.Store.RecordFailure(patient(t), keyOf("failing"), errFn)
	require.NoError(t, err)
	require.NoError(t, h.Store.Bury(patient(t), keyOf("dead"), newMessage("dead", ""), 3, errFn))
	deferred(t, h.Store, "deferred", "key")
	requireClosed(t, h.Store)

	again := h.open(t)
	for _, id := range []string{"handled", "dead", "deferred"} {
		require.True(t, claimed(t, again.Store, keyOf(id)), id)
	}
	got, err := again.Store.RecordFailure(patient(t), keyOf("failing"), errFn)
	require.NoError(t, err)
	require.Equal(t, 2, got)
	msg := receive(t, again.subscribe(t, briefly()), "the message")
	require.Equal(t, newMessage("deferred", "key").Payload, msg.Payload)
	require.Equal(t, newMessage("deferred", "key").Metadata, msg.Metadata)
	msg.Ack()
	h.requireDrained(t, queue)
	require.Equal(t, "dead", h.letter(t).MessageID)
}
