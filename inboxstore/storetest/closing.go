package storetest

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// As with any subscriber of Watermill, the context of a message lives until it is acked or nacked,
// and no longer.
func testContextEndsWithAck(t *testing.T, h Harness) {
	deferred(t, h.Store, "acked", "")
	deferred(t, h.Store, "nacked", "")
	got := receiveJust(t, h.subscribe(t, hourly()), "acked", "nacked")
	for id, answer := range map[string]func(*message.Message) bool{"acked": (*message.Message).Ack, "nacked": (*message.Message).Nack} {
		msg := got[id]
		requireQuiet(t, msg.Context().Done(), id+": its context ended before")
		answer(msg)
		requireEnd(t, msg.Context().Done(), id+": the end of its context")
	}
}

// F1: a message that is not acked when a subscription closes is still stored, with all its
// attempts; all other messages are gone. Close returns when all is settled and the channel is
// closed.
func testCloseLosesNothing(t *testing.T, h Harness) {
	requireNothingLost(t, h, func(subscriber message.Subscriber, messages <-chan *message.Message, _ context.CancelFunc) {
		requireClosed(t, subscriber)
		requireEnded(t, messages)
	})
}

// F1: the same if the context of Subscribe ends.
func testContextEndLosesNothing(t *testing.T, h Harness) {
	requireNothingLost(t, h, func(_ message.Subscriber, _ <-chan *message.Message, cancel context.CancelFunc) { cancel() })
}

func requireNothingLost(
	t *testing.T, h Harness, end func(subscriber message.Subscriber, messages <-chan *message.Message, cancel context.CancelFunc),
) {
	t.Helper()
	var want []string
	for i := range 10 {
		id, orderingKey := strconv.Itoa(i), ""
		if i >= 4 {
			orderingKey = []string{"even", "odd"}[i%2]
		}
		deferred(t, h.Store, id, orderingKey)
		want = append(want, id)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	subscriber := h.subscriber(t, briefly())
	messages, err := subscriber.Subscribe(ctx, queue)
	require.NoError(t, err)
	got := receiveAll(t, messages, 3)
	var acked string
	for id, msg := range got {
		if msg.Metadata.Get(postbox.MetadataOrderingKey) == "" {
			acked = id
			msg.Ack()
			break
		}
	}
	end(subscriber, messages, cancel)
	requireNoMore(t, messages)
	for id, msg := range got {
		requireEnd(t, msg.Context().Done(), id+": the end of its context")
	}
	var left []Pending
	for _, id := range want {
		if id != acked {
			left = append(left, Pending{MessageID: id}) // the end of a subscription is no failed attempt
		}
	}
	h.requirePending(t, left...)
	require.Empty(t, h.letters(t))

	messages = h.subscribe(t, briefly())
	for range left {
		receive(t, messages, "what was not acked").Ack()
	}
	h.requireDrained(t, queue)
}

// requireNoMore waits for a subscription to close its channel. Messages that come before were
// already on their way.
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

// requireEnded checks that the channel is closed by now.
func requireEnded(t *testing.T, messages <-chan *message.Message) {
	t.Helper()
	select {
	case _, open := <-messages:
		require.False(t, open, "a message after Close")
	default:
		require.Fail(t, "Close has returned, and a channel is still open")
	}
}

// G12: a handler that has a message when its subscription ends may finish, in a live context,
// within the close timeout.
func testAckAfterEnd(t *testing.T, h Harness) {
	deferred(t, h.Store, "acked", "")
	deferred(t, h.Store, "nacked", "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	messages, err := h.subscriber(t, hourly()).Subscribe(ctx, queue)
	require.NoError(t, err)
	got := receiveJust(t, messages, "acked", "nacked")
	cancel()
	requireQuiet(t, got["acked"].Context().Done(), "a message's context must outlive the subscription")
	got["acked"].Ack()
	got["nacked"].Nack()
	requireNoMore(t, messages)
	h.requirePending(t, Pending{MessageID: "nacked", Attempts: 1})
}

// Close of a subscriber is idempotent and closes its channels. After it, Subscribe returns an
// error.
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
	requireEnded(t, one)
	requireEnded(t, two)
	_, err = subscriber.Subscribe(t.Context(), "one")
	require.ErrorIs(t, err, postbox.ErrClosed)
}
