package pgtail_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Also covers G3.
func TestTail_G2_brings_messages_without_a_poll_and_in_order(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	f := w.start(b, forwarder.Config{Tail: w.tail()})
	w.follows(f)
	taken := w.recorder.value(metrics.LogTaken)
	reads := w.recorder.value(metrics.Reads)

	messages, ids := numbered("a", 100)
	for _, m := range messages {
		w.publish("orders", m)
	}
	w.eventually(func() bool { return b.has(ids...) }, "all are published")
	require.Equal(t, ids, b.ids("a"))
	require.GreaterOrEqual(t, w.recorder.value(metrics.LogTaken)-taken, 50.0, "hardly any was found by polling")
	require.LessOrEqual(t, w.recorder.value(metrics.Reads)-reads, 20.0, "there was no poll for each of them")
	w.eventually(func() bool { return w.Count(t, "SELECT COUNT(*) FROM postbox_messages") == 0 }, "their rows are removed")
	require.Equal(t, "payload of a-00000", string(b.got[0].Payload))
	require.Zero(t, f.log.count("cannot"), f.log.all())
	f.stop(t)
}
