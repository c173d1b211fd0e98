package pgtail_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// withoutPublication drops the publication, and changes a table, so that the server needs the publication.
func (w *world) withoutPublication() {
	w.Helper()
	if w.Count(w.T, "SELECT current_setting('server_version_num')::int") >= 180_000 {
		w.Skip("PostgreSQL 17 or earlier is missing: this version reads its log without a publication, too")
	}
	name := w.permanentSlot()
	tx, err := w.DB.BeginTx(w.Context(), nil)
	require.NoError(w, err)
	require.NoError(w, w.emitter("outbox").Bind(tx).Publish("orders", keyed("readable", "key")))
	_, err = tx.ExecContext(w.Context(), "DROP PUBLICATION "+name)
	require.NoError(w, err)
	require.NoError(w, tx.Commit())
	require.ErrorContains(w, pgtail.CheckOutbox(w.Context(), w.Postbox(), w.outboxConfig()), "the publication "+name, "it is gone, and perhaps other tests have changed tables already")
	w.changeTable()
}

// changeTable changes a table that is in no publication. Without the publication the server cannot read its log from then on.
func (w *world) changeTable() {
	w.Helper()
	w.Exec(w.T, "CREATE TABLE business AS SELECT 1 AS n")
	w.Exec(w.T, "INSERT INTO business VALUES (2)")
	w.Exec(w.T, "DROP TABLE business")
}

// saysThatTheSlotIsLost looks whether an operator is told what to do, and not only to make the publication again.
func (w *world) saysThatTheSlotIsLost() {
	w.Helper()
	status, err := pgtail.InspectOutbox(w.Context(), w.Postbox(), w.outboxConfig())
	require.NoError(w, err)
	require.Empty(w, about(status, pgtail.AboutPublication))
	lost := about(status, pgtail.AboutSlot)
	require.Len(w, lost, 1)
	require.Empty(w, about(status, pgtail.AboutReader), "it does not tell to remove the slot")
	require.True(w, lost[0].Problem)
	require.Contains(w, lost[0].What, "messages that were in the log alone may be lost")
	require.Contains(w, lost[0].Fix, "postbox log accept-loss")
}

// The server looks for the publication as it was at each place in the log, so one that is made later does not help.
func TestOutbox_notices_that_its_publication_was_dropped(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	ctx, db, config := t.Context(), w.Postbox(), w.outboxConfig()
	f := w.reader(b)
	w.emit(keyed("before", "key"))
	w.eventually(func() bool { return b.has("before") }, "it is published")
	w.withoutPublication()
	require.ErrorContains(t, w.emitter("outbox").Publish("orders", keyed("refused", "key")), "dropped or renamed")
	err := <-f.ended
	require.ErrorIs(t, err, pgtail.ErrSlotLost)
	require.ErrorContains(t, err, "was dropped or renamed")
	require.LessOrEqual(t, f.log.count("cannot read messages from the log"), 1)
	w.saysThatTheSlotIsLost()

	require.ErrorIs(t, pgtail.SetupOutbox(ctx, db, config), pgtail.ErrSlotLost)
	require.Equal(t, 1, w.Count(t, "SELECT COUNT(*) FROM pg_publication WHERE pubname = "+permanentSlot), "it was made again")
	require.ErrorContains(t, w.emitter("outbox").Publish("orders", keyed("refused", "key")), "run pgtail.SetupOutbox")
	require.ErrorIs(t, pgtail.CheckOutbox(ctx, db, config), pgtail.ErrSlotLost)
	w.saysThatTheSlotIsLost()
	blind, err := pgtail.InspectOutbox(ctx, db, pgtail.OutboxConfig{})
	require.NoError(t, err)
	require.Contains(t, about(blind, pgtail.AboutReader)[0].Fix, "If the forwarder ends with pgtail.ErrSlotLost, messages are lost", "without an address it cannot be known")
	require.NotContains(t, about(blind, pgtail.AboutReader)[0].Fix, "log remove")
	require.ErrorIs(t, <-w.reader(b).ended, pgtail.ErrSlotLost)

	require.NoError(t, acceptLoss(ctx, db, config))
	require.NoError(t, pgtail.CheckOutbox(ctx, db, config))
	w.emit(keyed("after", "key"))
	again := w.reader(b)
	w.eventually(func() bool { return b.has("after") }, "it goes on")
	require.Equal(t, []string{"before", "readable", "after"}, first(b.ids("key")), "what could be read is not lost")
	again.stop(t)

	w.withoutPublication()
	w.eventually(func() bool { err = pgtail.RemoveOutbox(ctx, db, config); return errors.Is(err, pgtail.ErrSlotLost) }, "the loss is found once the server knows that the process is gone")
	require.ErrorContains(t, err, "hide a loss")
	require.NoError(t, pgtail.DiscardOutbox(ctx, db, config))
	require.Zero(t, w.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = "+permanentSlot))
}

// AcceptLoss would begin before the stored position, and messages would be published again.
func TestAcceptLoss_is_refused_if_nothing_is_lost(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	f := w.reader(b)
	w.settled(b)
	epoch := w.Count(t, "SELECT epoch FROM postbox_log_position")
	require.ErrorContains(t, acceptLoss(t.Context(), w.Postbox(), w.outboxConfig()), "nothing is lost")
	f.stop(t)
	w.eventually(func() bool {
		return w.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE NOT active AND slot_name = "+permanentSlot) == 1
	}, "the server knows that the process is gone")
	before := w.Count(t, "SELECT position FROM postbox_log_position") // until then the reader stores it for what others write, too
	require.ErrorContains(t, acceptLoss(t.Context(), w.Postbox(), w.outboxConfig()), "nothing is lost")
	require.Equal(t, before, w.Count(t, "SELECT position FROM postbox_log_position"))
	require.Equal(t, epoch, w.Count(t, "SELECT epoch FROM postbox_log_position"), "no process was fenced out")
}

// The restored tables have other numbers, so the slot of the former ones would keep the log of the server for ever.
func TestAcceptLoss_drops_the_slot_of_tables_that_were_restored(t *testing.T) {
	t.Parallel()
	for _, remove := range []bool{false, true} {
		w := newOutboxWorldAlone(t) // where no other test takes the slot for one that is left
		var former string
		require.NoError(t, w.DB.QueryRowContext(t.Context(), "SELECT slot FROM postbox_log_position").Scan(&former))
		w.Exec(t, "ALTER TABLE postbox_messages RENAME TO former")
		w.Exec(t, "CREATE TABLE postbox_messages (LIKE former INCLUDING ALL)")
		left := func() int {
			return w.Count(t, "SELECT (SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = ?) + (SELECT COUNT(*) FROM pg_publication WHERE pubname = ?)", former, former)
		}
		call := acceptLoss
		if remove {
			require.ErrorIs(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()), pgtail.ErrSlotLost)
			call = pgtail.DiscardOutbox
		}
		if !remove { // a copy beside the tables must not take their slot
			require.NoError(t, call(t.Context(), w.Postbox(), w.outboxConfig()))
			require.Equal(t, 2, left())
			require.NoError(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
			w.Exec(t, "INSERT INTO postbox_log_position (id, slot, position, part, epoch, saved_at) VALUES (1, ?, 0, 0, 1, 0)", former)
		}
		w.Exec(t, "DROP TABLE former CASCADE")
		w.Exec(t, "CREATE TABLE postbox_waiting () INHERITS (postbox_messages)")
		require.NoError(t, call(t.Context(), w.Postbox(), w.outboxConfig()))
		require.Zero(t, left())
	}
}

func TestOutbox_refuses_a_slot_of_another_kind(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	for _, made := range []string{"pg_create_logical_replication_slot(%s, 'test_decoding')", "pg_create_physical_replication_slot(%s)"} {
		require.True(t, w.dropSlot())
		w.Exec(t, "SELECT "+strings.ReplaceAll(made, "%s", permanentSlot))
		err := w.emitter("outbox").Publish("orders", keyed("refused", "key"))
		require.ErrorContains(t, err, "run pgtail.SetupOutbox")
		require.NotContains(t, err.Error(), "configuration parameter", "it says what to do, and not how it was found")
		var of interface {
			error
			SQLState() string
		}
		require.ErrorAs(t, err, &of, "the error of the server is there, too")
		require.ErrorIs(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), w.outboxConfig()), pgtail.ErrSlotLost)
		require.ErrorIs(t, <-w.reader(&broker{}).ended, pgtail.ErrSlotLost)
		for _, drops := range []func(context.Context, postbox.Database, pgtail.OutboxConfig) error{acceptLoss, pgtail.RemoveOutbox} {
			require.ErrorContains(t, drops(t.Context(), w.Postbox(), w.outboxConfig()), "was made by another program")
		}
		require.Equal(t, 1, w.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = "+permanentSlot), "that program may need it")
	}
	require.True(t, w.dropSlot())
	require.NoError(t, acceptLoss(t.Context(), w.Postbox(), w.outboxConfig()))
	require.NoError(t, w.emitter("outbox").Publish("orders", keyed("message", "key")))
}

func TestOutbox_says_that_DSN_lacks_the_schema(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	address, err := url.Parse(w.DSN)
	require.NoError(t, err)
	parameters := address.Query()
	parameters.Del("search_path")
	address.RawQuery = parameters.Encode()
	config := pgtail.OutboxConfig{DSN: address.String()}
	require.ErrorContains(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), config), "search_path of the forwarder")
	reader, err := pgtail.NewOutbox(config)
	require.NoError(t, err)
	require.ErrorContains(t, <-w.start(&broker{}, forwarder.Config{Tail: reader}).ended, "search_path of the forwarder")
}

func TestSetupOutbox_says_that_tables_are_missing(t *testing.T) {
	t.Parallel()
	w := &world{T: t, Database: testdb.PostgresLog(t)}
	require.ErrorContains(t, pgtail.SetupOutbox(t.Context(), w.Postbox(), w.outboxConfig()), "postbox.Migrate")
	require.NotContains(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), w.outboxConfig()).Error(), "pgtail.Setup,")
}
