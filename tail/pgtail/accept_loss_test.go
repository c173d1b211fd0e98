package pgtail_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// The steps of the runbook in docs/operations.md. What is written before the loss is accepted is lost, although publishers see no error, and nothing of what is written afterwards is.
func TestAcceptLoss_G1_loses_nothing_that_is_published_afterwards(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	f := w.reader(b)
	w.emit(keyed("before", "key"))
	w.settled(b)
	f.stop(t)
	outbox := w.emitter("outbox")
	require.NoError(t, outbox.Publish("orders", keyed("lost-0", "key")))
	w.eventually(w.dropSlot, "the slot is lost")
	lost, refused := []string{"lost-0"}, error(nil)
	w.eventually(func() bool { // until the publisher looks for the slot again
		id := fmt.Sprintf("lost-%d", len(lost))
		lost = append(lost, id)
		refused = outbox.Publish("orders", keyed(id, "key"))
		return refused != nil
	}, "the publisher notices that the slot is lost")
	require.ErrorContains(t, refused, `run "postbox log accept-loss"`)
	err := <-w.reader(b).ended
	require.ErrorIs(t, err, pgtail.ErrSlotLost)
	require.ErrorContains(t, err, "publish these again afterwards, not before")

	saved, began := w.Count(t, "SELECT saved_at FROM postbox_log_position"), w.clock()
	loss, err := pgtail.AcceptLoss(t.Context(), w.Postbox(), w.outboxConfig())
	require.NoError(t, err)
	require.Equal(t, time.UnixMicro(int64(saved)).UTC(), loss.Since)
	require.False(t, loss.Until.Before(began) || loss.Until.After(w.clock()), "%s", loss.Until)
	require.Equal(t, 1, w.Count(t, "SELECT COUNT(*) FROM postbox_log_position WHERE '0/0'::pg_lsn + position = ?::pg_lsn", loss.Position))
	require.Equal(t, 1, w.Count(t, "SELECT COUNT(*) FROM postbox_audit WHERE action = 'log accept-loss' AND note = ?", loss.String()))

	for _, id := range lost { // by a process that has not started a forwarder yet
		require.NoError(t, outbox.Publish("orders", keyed(id, "key")))
	}
	again := w.reader(b)
	w.emit(keyed("after", "key"))
	want := append(append([]string{"before"}, lost...), "after")
	w.eventually(func() bool { return b.has(want...) }, "all that is published after the loss was accepted arrives")
	require.Equal(t, want, first(b.ids("key")))
	again.stop(t)
}

// clock is that of the server, in microseconds.
func (w *world) clock() time.Time {
	return time.UnixMicro(int64(w.Count(w.T, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"))).UTC()
}
