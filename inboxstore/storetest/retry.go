package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/report"
)

// A nacked message is handed out again as it was stored, whatever its handler did to it, and its
// key waits for it.
func testNack(t *testing.T, h Harness) {
	deferred(t, h.Store, "1", "key")
	deferred(t, h.Store, "2", "key")
	messages := h.subscribe(t, briefly())
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
	h.requireDrained(t, queue)
	require.Empty(t, h.letters(t))
}

// F11: while a message waits for its next attempt, its key waits. All other messages continue,
// later ones too.
func testFailingKeyWaits(t *testing.T, h Harness) {
	for _, m := range [][2]string{{"a1", "a"}, {"a2", "a"}, {"b1", "b"}, {"b2", "b"}, {"none1", ""}} {
		deferred(t, h.Store, m[0], m[1])
	}
	messages := h.subscribe(t, hourly())
	got := receiveJust(t, messages, "a1", "b1", "none1")
	got["a1"].Nack()
	got["b1"].Ack()
	got["none1"].Ack()
	receive(t, messages, "the second of key b").Ack()
	deferred(t, h.Store, "a3", "a")
	deferred(t, h.Store, "b3", "b")
	msg := receive(t, messages, "what was stored later")
	require.Equal(t, "b3", msg.UUID)
	msg.Ack()
	h.requirePending(t, Pending{MessageID: "a1", Attempts: 1}, Pending{MessageID: "a2"}, Pending{MessageID: "a3"})
	requireQuiet(t, messages, "a message was handed out before its next attempt, or past one that failed")
}

// After the last attempt a message is a dead letter with its payload, its metadata and an entry for
// each attempt. Then its key continues. The message is not handed out again, not even when the
// broker delivers it again.
func testDeadAfterAttempts(t *testing.T, h Harness) {
	deferred(t, h.Store, "1", "key")
	deferred(t, h.Store, "2", "key")
	messages := h.subscribe(t, briefly())
	for range attempts {
		msg := receive(t, messages, "another attempt")
		require.Equal(t, "1", msg.UUID)
		msg.Nack()
	}
	msg := receive(t, messages, "the next of the key")
	require.Equal(t, "2", msg.UUID, "the first one has had its attempts")
	msg.Ack()
	h.requireDrained(t, queue)

	letter := h.letter(t)
	require.Equal(t, queue, letter.Queue)
	require.Equal(t, "1", letter.MessageID)
	require.Equal(t, []byte(newMessage("1", "").Payload), letter.Payload)
	require.Equal(t, newMessage("1", "key").Metadata, letter.Metadata)
	require.Equal(t, attempts, letter.Attempts)
	require.Len(t, letter.Failures, attempts)
	require.NotEmpty(t, letter.Error)
	require.True(t, claimed(t, h.Store, keyOf("1")))
	requireQuiet(t, messages, "a dead message was handed out")
}

// A Nack carries no error. An error that the handler passes to queue.Fail is in the record of that
// attempt, and of no other.
func testFail(t *testing.T, h Harness) {
	deferred(t, h.Store, "1", "")
	messages := h.subscribe(t, briefly())
	for _, cause := range []error{errors.New("first"), nil, errFn} {
		msg := receive(t, messages, "another attempt")
		if cause != nil {
			require.True(t, report.Fail(msg.Context(), cause), "its context takes the error of the handler")
		}
		msg.Nack()
	}
	h.requireDrained(t, queue)
	letter := h.letter(t)
	require.Equal(t, []string{"first", report.ErrNacked.Error(), errFn.Error()}, letter.Failures)
	require.Equal(t, errFn.Error(), letter.Error)
}

// postbox.Permanent: no further attempt is made, and the key continues.
func testPermanent(t *testing.T, h Harness) {
	deferred(t, h.Store, "1", "key")
	deferred(t, h.Store, "2", "key")
	messages := h.subscribe(t, hourly())
	msg := receive(t, messages, "the message")
	require.True(t, report.Fail(msg.Context(), postbox.Permanent(errFn)))
	msg.Nack()
	msg = receive(t, messages, "the next of the key")
	require.Equal(t, "2", msg.UUID)
	msg.Ack()
	h.requireDrained(t, queue)
	letter := h.letter(t)
	require.Equal(t, "1", letter.MessageID)
	require.Equal(t, 1, letter.Attempts)
	require.Equal(t, []string{errFn.Error()}, letter.Failures)
}

// postbox.RetryAfter sets the pause, shorter or longer than the profile's. The attempt counts.
func testRetryAfter(t *testing.T, h Harness) {
	const pause = 300 * time.Millisecond
	deferred(t, h.Store, "1", "")
	subscriber := h.subscriber(t, hourly())
	messages, err := subscriber.Subscribe(t.Context(), queue)
	require.NoError(t, err)
	msg := receive(t, messages, "the message")
	failed := time.Now()
	require.True(t, report.Fail(msg.Context(), postbox.RetryAfter(errFn, pause)))
	msg.Nack()
	msg = receive(t, messages, "another attempt, in less than the profile's hour")
	require.GreaterOrEqual(t, time.Since(failed), pause)
	msg.Ack()
	h.requireDrained(t, queue)
	requireClosed(t, subscriber)

	deferred(t, h.Store, "2", "")
	messages = h.subscribe(t, briefly())
	msg = receive(t, messages, "the message")
	require.True(t, report.Fail(msg.Context(), postbox.RetryAfter(errFn, time.Hour)))
	msg.Nack()
	h.requirePending(t, Pending{MessageID: "2", Attempts: 1})
	requireQuiet(t, messages, "it came again before its pause was over")
}

// F14: attempts are counted for the message, not for the subscriber.
func testAttemptsAcrossSubscriptions(t *testing.T, h Harness) {
	deferred(t, h.Store, "1", "key")
	for range attempts {
		subscriber := h.subscriber(t, briefly())
		messages, err := subscriber.Subscribe(t.Context(), queue)
		require.NoError(t, err)
		receive(t, messages, "another attempt").Nack()
		requireClosed(t, subscriber)
	}
	require.Empty(t, h.pending(t, queue))
	require.Equal(t, attempts, h.letter(t).Attempts)
}
