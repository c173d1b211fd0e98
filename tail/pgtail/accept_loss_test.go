package pgtail_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

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

// A supervisor starts forwarders again and again, each of which reads until it comes to what the server cannot read. One that has the slot just then is no sign that all is well.
func TestAcceptLoss_while_forwarders_are_started_again(t *testing.T) {
	t.Parallel()
	for range 6 { // each could be lucky
		t.Run("", func(t *testing.T) {
			t.Parallel()
			w := newOutboxWorld(t)
			if w.readsUnpublished() {
				t.Skip("PostgreSQL 17 or earlier is missing: this version reads its log without a publication, too")
			}
			name := w.permanentSlot()
			messages := make([]*message.Message, 5_000) // it takes a while to read these
			for i := range messages {
				messages[i] = keyed(fmt.Sprint(i), "key")
			}
			require.NoError(t, w.emitter("outbox").Publish("orders", messages...))
			w.Exec(t, "ALTER PUBLICATION "+name+" RENAME TO "+name+"_other")
			w.changeTable()
			w.Exec(t, "ALTER PUBLICATION "+name+"_other RENAME TO "+name)

			sessions := w.openAs(w.DSN)
			sessions.SetMaxIdleConns(-1) // a server up to 17.6 may crash if a session reads the log again after an error
			forwarders, stop := context.WithCancel(t.Context())
			begun, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				for forwarders.Err() == nil {
					_, _ = sessions.ExecContext(forwarders, fmt.Sprintf("SELECT FROM pg_logical_slot_peek_binary_changes('%s', NULL, NULL, 'proto_version', '1', 'publication_names', '%[1]s', 'messages', 'true')", name))
					select {
					case begun <- struct{}{}:
					case <-forwarders.Done():
					case <-time.After(time.Millisecond):
					}
				}
			}()
			<-begun
			err := acceptLoss(t.Context(), w.Postbox(), w.outboxConfig())
			stop()
			<-ended
			require.NoError(t, err, "the log cannot be read")
			require.NoError(t, w.emitter("outbox").Publish("orders", keyed("after", "key")))
		})
	}
}

// Without the slot and the position, no program would say any more that messages were lost.
func TestRemoveOutbox_G1_does_not_hide_a_loss(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]string{
		"dropped":  "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = " + permanentSlot,
		"moved on": "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots WHERE slot_name = " + permanentSlot,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newOutboxWorld(t)
			w.emit(keyed("lost", "key"))
			w.Exec(t, lose)
			for range 2 { // the first one must not remove what tells it
				err := pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig())
				require.ErrorIs(t, err, pgtail.ErrSlotLost)
				require.ErrorContains(t, err, "accept it first, or call pgtail.DiscardOutbox")
			}
			status, err := pgtail.InspectOutbox(t.Context(), w.Postbox(), w.outboxConfig())
			require.NoError(t, err)
			require.Len(t, about(status, pgtail.AboutSlot), 1)
			require.Empty(t, about(status, pgtail.AboutReader), "it does not tell to remove the slot")

			require.NoError(t, acceptLoss(t.Context(), w.Postbox(), w.outboxConfig()))
			require.NoError(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
		})
	}
}

// clock is that of the server, in microseconds.
func (w *world) clock() time.Time {
	return time.UnixMicro(int64(w.Count(w.T, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"))).UTC()
}
