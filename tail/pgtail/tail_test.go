package pgtail_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Also covers G3.
func TestTail_G2_brings_messages_without_a_poll_and_in_order(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	f := w.start(b, forwarder.Config{Tail: w.tail(), PollMin: time.Hour}) // otherwise it goes on to poll for a while, and finds what the log brings a little later
	w.follows(f)
	w.done()
	taken := w.recorder.value(metrics.LogTaken)
	reads := w.recorder.value(metrics.Reads)

	messages, ids := numbered("a", 100)
	for _, m := range messages {
		w.publish("orders", m)
	}
	w.eventually(func() bool { return b.has(ids...) }, "all are published")
	require.Equal(t, ids, b.ids("a"))
	w.done()
	require.InDelta(t, len(ids), w.recorder.value(metrics.LogTaken)-taken, 0, "the log has brought all of them")
	require.Zero(t, w.recorder.value(metrics.Reads)-reads, "there was no poll")
	require.Equal(t, "payload of a-00000", string(b.got[0].Payload))
	require.Zero(t, f.log.count("cannot"), f.log.all())
	f.stop(t)
}
