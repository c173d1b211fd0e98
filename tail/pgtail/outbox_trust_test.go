package pgtail_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// readsUnpublished reports whether the server reads its log without a publication, too. Then nothing is lost without one, and publishers do not need it.
func (w *world) readsUnpublished() bool {
	w.Helper()
	return w.Count(w.T, "SELECT current_setting('server_version_num')::int") >= 180_000
}

// onlyPublished skips the test on a server that needs no publication.
func (w *world) onlyPublished() {
	w.Helper()
	if w.readsUnpublished() {
		w.Skip("PostgreSQL 17 or earlier is missing: this version reads its log without a publication, too")
	}
}

// waitsForPublication reports whether a transaction waits for the lock of a publication.
func (w *world) waitsForPublication(name string) bool {
	return w.Count(w.T, "SELECT COUNT(*) FROM pg_locks l JOIN pg_publication p ON p.oid = l.objid WHERE l.classid = 'pg_publication'::regclass AND NOT l.granted AND p.pubname = ?", name) == 1
}

// A message that publishers have seen no error for is published, whatever is done to the publication, and until the loss is accepted.
func TestOutbox_G1_loses_no_message_with_its_publication(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ lose, undo string }{
		"dropped":                    {lose: "DROP PUBLICATION %s"},
		"renamed":                    {lose: "ALTER PUBLICATION %s RENAME TO %[1]s_other"},
		"renamed and back":           {lose: "ALTER PUBLICATION %s RENAME TO %[1]s_other", undo: "ALTER PUBLICATION %s_other RENAME TO %[1]s"},
		"dropped and made by others": {lose: "DROP PUBLICATION %s", undo: "CREATE PUBLICATION %s FOR TABLE postbox_messages WITH (publish = 'insert')"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, b := newOutboxWorld(t), &broker{}
			db, config, name := w.Postbox(), w.outboxConfig(), w.permanentSlot()
			t.Cleanup(func() { _, _ = w.DB.Exec("DROP PUBLICATION IF EXISTS " + name + "_other") }) //nolint:noctx // the test's context is over
			f := w.reader(b)
			outbox := w.emitter("outbox")
			var accepted []string
			publish := func(id string) error {
				err := outbox.Publish("orders", keyed(id, "key"))
				if err == nil {
					accepted = append(accepted, id)
				}
				return err
			}
			refused := func(id, why string) {
				err := publish(id)
				if w.readsUnpublished() {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, why)
				require.ErrorContains(t, w.emitter("outbox").Publish("orders", keyed(id, "key")), why, "a publisher that begins")
			}
			require.NoError(t, publish("before"))
			w.Exec(t, fmt.Sprintf(c.lose, name))
			refused("at once", "was dropped or renamed")
			w.changeTable()
			refused("later", "was dropped or renamed")
			if c.undo != "" {
				w.Exec(t, fmt.Sprintf(c.undo, name))
				refused("after it was undone", "was renamed, altered or made again")
			}
			if !w.readsUnpublished() {
				require.ErrorIs(t, <-f.ended, pgtail.ErrSlotLost)
				for range 2 {
					require.ErrorIs(t, pgtail.SetupOutbox(t.Context(), db, config), pgtail.ErrSlotLost)
					refused("after a set-up", "was renamed, altered or made again")
				}
				require.NoError(t, acceptLoss(t.Context(), db, config))
				f = w.reader(b)
			}
			require.NoError(t, publish("after"))
			w.eventually(func() bool { return b.has(accepted...) }, "all are published that were accepted")
			require.Equal(t, accepted, first(b.ids("key")))
			f.stop(t)
		})
	}
}

// Without that, the server could not read a message that is committed after the publication was dropped, although its publisher has seen no error.
func TestOutbox_G1_its_publication_stays_until_open_transactions_have_ended(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]string{"drop": "DROP PUBLICATION %s", "rename": "ALTER PUBLICATION %s RENAME TO %[1]s_other"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w, b := newOutboxWorld(t), &broker{}
			name := w.permanentSlot()
			t.Cleanup(func() { _, _ = w.DB.Exec("DROP PUBLICATION IF EXISTS " + name + "_other") }) //nolint:noctx // the test's context is over
			tx, err := w.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			require.NoError(t, w.emitter("outbox").Bind(tx).Publish("orders", keyed("open", "key")))
			lost := make(chan error, 1)
			go func() {
				_, err := w.DB.ExecContext(t.Context(), fmt.Sprintf(lose, name))
				lost <- err
			}()
			if w.readsUnpublished() {
				require.NoError(t, <-lost)
				w.changeTable()
				require.NoError(t, tx.Commit())
			} else {
				w.eventually(func() bool { return w.waitsForPublication(name) }, "the server waits")
				w.changeTable()
				require.NoError(t, tx.Commit())
				require.NoError(t, <-lost)
				w.changeTable()
			}
			f := w.reader(b)
			if !w.readsUnpublished() {
				require.ErrorIs(t, <-f.ended, pgtail.ErrSlotLost)
				f = w.start(b, forwarder.Config{}) // the other one may have stored the message, and ended
			}
			w.eventually(func() bool { return b.has("open") }, "it is published")
			f.stop(t)
		})
	}
}

// A transaction that has written something, such as a row of the business, counts the age of a publication from itself on. To such a transaction a publication that was changed later is no older than one that
// was always there. If it trusted that, all publishers of its process would for the next second, and what they write is lost.
func TestOutbox_G1_a_transaction_trusts_no_later_publication(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ lose, undo string }{
		"renamed and back":           {lose: "ALTER PUBLICATION %s RENAME TO %[1]s_other", undo: "ALTER PUBLICATION %s_other RENAME TO %[1]s"},
		"dropped and made by others": {lose: "DROP PUBLICATION %s", undo: "CREATE PUBLICATION %s FOR TABLE postbox_messages WITH (publish = 'insert')"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newOutboxWorldAlone(t)
			if w.readsUnpublished() {
				t.Skip("PostgreSQL 17 or earlier is missing: this version reads its log without a publication, too")
			}
			name := w.permanentSlot()
			w.Exec(t, "CREATE TABLE orders (id int)")
			tx, err := w.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			_, err = tx.ExecContext(t.Context(), "INSERT INTO orders VALUES (1)")
			require.NoError(t, err)
			w.Exec(t, fmt.Sprintf(c.lose, name))
			w.changeTable()
			w.Exec(t, fmt.Sprintf(c.undo, name))
			require.ErrorContains(t, w.emitter("outbox").Bind(tx).Publish("orders", keyed("lost", "key")), "was renamed, altered or made again")
		})
	}
}

// The publisher sees the publication as it was when its statement began, which then waits for the one that takes its place.
func TestOutbox_G1_does_not_trust_a_publication_that_was_replaced_while_the_publisher_waited(t *testing.T) {
	t.Parallel()
	w := newOutboxWorldAlone(t)
	w.onlyPublished()
	name := w.permanentSlot()
	w.Exec(t, "CREATE TABLE business (n int)")
	tx, _ := w.open("DROP PUBLICATION "+name, "INSERT INTO business VALUES (1)", fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE postbox_messages WITH (publish = 'insert')", name))
	published := make(chan error, 1)
	go func() { published <- w.emitter("outbox").Publish("orders", keyed("refused", "key")) }()
	w.eventually(func() bool { return w.waitsForPublication(name) }, "the publisher waits")
	require.NoError(t, tx.Commit())
	require.ErrorContains(t, <-published, "was dropped or renamed")
}

// The transaction has ended for others before its end is on the disk, and the server reads only what is there.
func TestSetupOutbox_G1_notices_a_loss_that_is_not_on_the_disk_yet(t *testing.T) {
	t.Parallel()
	w := newOutboxWorldAlone(t)
	w.onlyPublished()
	w.Exec(t, "CREATE TABLE business (n int)")
	tx, _ := w.open("SET LOCAL synchronous_commit = off")
	w.Exec(t, "DROP PUBLICATION "+w.permanentSlot())
	_, err := tx.ExecContext(t.Context(), "INSERT INTO business VALUES (1)")
	require.NoError(t, err)
	setUp := make(chan error, 1)
	go func() { setUp <- pgtail.SetupOutbox(context.WithoutCancel(t.Context()), w.Postbox(), w.outboxConfig()) }()
	w.eventually(func() bool {
		return w.Count(t, "SELECT COUNT(*) FROM pg_publication WHERE pubname = "+permanentSlot) == 1
	}, "it has made the publication, and waits for the transaction")
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, <-setUp, pgtail.ErrSlotLost)
	require.ErrorContains(t, w.emitter("outbox").Publish("orders", keyed("refused", "key")), "was renamed, altered or made again")
}

// No transaction with a larger number than that of the open one has ended yet, so a snapshot does not know it.
func TestSetupOutbox_G1_waits_for_the_youngest_transaction(t *testing.T) {
	t.Parallel()
	w := newOutboxWorldAlone(t)
	w.onlyPublished()
	name := w.permanentSlot()
	w.Exec(t, "CREATE TABLE business (n int)")
	w.Exec(t, "DROP PUBLICATION "+name)
	operator, _ := w.open("CREATE PUBLICATION " + name + " FOR TABLE ONLY postbox_messages, ONLY postbox_waiting, ONLY postbox_audit, ONLY postbox_members WITH (publish = 'insert')")
	tx, _ := w.open("INSERT INTO business VALUES (1)")
	require.NoError(t, operator.Commit())
	setUp := make(chan error, 1)
	go func() { setUp <- pgtail.SetupOutbox(context.WithoutCancel(t.Context()), w.Postbox(), w.outboxConfig()) }()
	select {
	case err := <-setUp:
		require.Fail(t, "it does not wait", "%v", err)
	case <-time.After(time.Second):
	}
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, <-setUp, pgtail.ErrSlotLost)
	require.ErrorContains(t, w.emitter("outbox").Publish("orders", keyed("refused", "key")), "was renamed, altered or made again")
}

// Nothing was lost yet, so the set-up makes the publication again, and publishers go on.
func TestSetupOutbox_mends_a_publication_that_was_dropped(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorldAlone(t), &broker{}
	outbox := w.emitter("outbox")
	require.NoError(t, outbox.Publish("orders", keyed("before", "key")))
	w.Exec(t, "DROP PUBLICATION "+w.permanentSlot())
	if !w.readsUnpublished() {
		require.Error(t, outbox.Publish("orders", keyed("refused", "key")))
		require.ErrorContains(t, acceptLoss(t.Context(), w.Postbox(), w.outboxConfig()), "run pgtail.SetupOutbox", "there is no loss to accept, and publishers need more")
	}
	status, err := pgtail.InspectOutbox(t.Context(), w.Postbox(), w.outboxConfig())
	require.NoError(t, err)
	require.Contains(t, about(status, pgtail.AboutPublication)[0].What, "is gone")
	require.NoError(t, pgtail.SetupOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	require.NoError(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	require.NoError(t, outbox.Publish("orders", keyed("after", "key")))
	f := w.reader(b)
	w.eventually(func() bool { return b.has("before", "after") }, "both are published")
	require.Equal(t, []string{"before", "after"}, b.ids("key"))
	f.stop(t)
}

// A publication that was altered may have been another one for a moment. The set-up finds out that it was not, also while a process reads.
func TestSetupOutbox_lets_publishers_go_on_after_the_publication_was_altered(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorld(t), &broker{}
	f := w.reader(b)
	w.emit(keyed("before", "key"))
	w.eventually(func() bool { return b.has("before") }, "the log is read")
	name := w.permanentSlot()
	w.Exec(t, "ALTER PUBLICATION "+name+" DROP TABLE ONLY postbox_audit")
	require.NoError(t, w.emitter("outbox").Publish("orders", keyed("fewer tables", "key")))
	require.NoError(t, pgtail.SetupOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	require.NoError(t, w.emitter("outbox").Publish("orders", keyed("all tables", "key")))

	w.Exec(t, "ALTER PUBLICATION "+name+" SET (publish = 'insert')")
	if !w.readsUnpublished() {
		require.ErrorContains(t, w.emitter("outbox").Publish("orders", keyed("refused", "key")), "was renamed, altered or made again")
		require.ErrorContains(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), w.outboxConfig()), "publishers get errors until a set-up has looked")
		status, err := pgtail.InspectOutbox(t.Context(), w.Postbox(), w.outboxConfig())
		require.NoError(t, err)
		require.True(t, about(status, pgtail.AboutPublication)[0].Problem)
	}
	require.NoError(t, pgtail.SetupOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	require.NoError(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	w.emit(keyed("after", "key"))
	w.eventually(func() bool { return b.has("fewer tables", "all tables", "after") }, "they are published")
	f.stop(t)
}

// Earlier versions have not noted that the log can be read. It can if the publication is older than what is to be read.
func TestOutbox_trusts_a_publication_of_an_earlier_version(t *testing.T) {
	t.Parallel()
	w, b := newOutboxWorldAlone(t), &broker{}
	statements, err := spool.StatementsIn(w.Postbox())
	require.NoError(t, err)
	w.Exec(t, "COMMENT ON PUBLICATION "+w.permanentSlot()+" IS NULL")
	f := w.reader(b)
	w.eventually(func() bool {
		w.Exec(t, "CHECKPOINT") // the server notes which transactions run, as it does every 15 s
		mark := statements.MarkLog()
		require.NoError(t, w.DB.QueryRowContext(t.Context(), mark.Text, mark.Args...).Scan(new(int64)))
		return w.emitter("outbox").Publish("orders", keyed("message", "key")) == nil
	}, "what is to be read is younger")
	w.eventually(func() bool { return b.has("message") }, "it is published")
	f.stop(t)
}
