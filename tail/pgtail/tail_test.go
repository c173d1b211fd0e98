package pgtail_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
)

// Nothing but the log tells of these messages: they come as from another process.
// Also covers G3.
func TestTail_G2_brings_messages_without_waiting_for_a_poll_and_in_order(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	f := w.start(b, forwarder.Config{Tail: w.tail(), Tuning: postbox.Tuning{PollMin: time.Hour, PollMax: time.Hour}})
	w.follows(f)
	w.done()
	taken := w.recorder.value(instruments.LogTaken)

	messages, ids := numbered("a", 100)
	for _, m := range messages {
		w.publishUnheard(m)
	}
	w.eventually(func() bool { return b.has(ids...) }, "all are published")
	require.Equal(t, ids, b.ids("a"))
	// The log may tell of the last warm-ups only now.
	w.eventually(func() bool { return int(w.recorder.value(instruments.LogTaken)-taken) >= len(ids) }, "the log has told of all of them")
	require.Equal(t, "payload of a-00000", string(b.got[0].Payload))
	require.Zero(t, f.log.count("cannot"), f.log.all())
	f.stop(t)
}
