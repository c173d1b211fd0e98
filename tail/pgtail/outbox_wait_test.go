package pgtail_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// waits keeps what a call says for what it waits.
type waits struct {
	mu   sync.Mutex
	said []string
}

func (w *waits) say(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, what)
}

func (w *waits) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.said...)
}

// open begins a transaction that has written something, and returns it with its process on the server.
func (w *world) open(statements ...string) (tx *sql.Tx, pid int) {
	w.Helper()
	tx, err := w.DB.BeginTx(w.Context(), nil)
	require.NoError(w, err)
	w.Cleanup(func() { _ = tx.Rollback() })
	for _, text := range append(statements, "SELECT pg_current_xact_id()") {
		_, err := tx.ExecContext(w.Context(), text)
		require.NoError(w, err)
	}
	require.NoError(w, tx.QueryRowContext(w.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	return tx, pid
}

// A transaction that is open comes into the log when it commits, and its messages would be lost with the slot.
func TestRemoveOutbox_G1_waits_for_transactions_that_have_published(t *testing.T) {
	t.Parallel()
	w := newOutboxWorldAlone(t)
	tx, _ := w.open()
	require.NoError(t, w.emitter("outbox").Bind(tx).Publish("orders", keyed("open", "key")))
	config, said := w.outboxConfig(), &waits{}
	config.Waits = said.say
	removed := make(chan error, 1)
	go func() { removed <- pgtail.RemoveOutbox(context.WithoutCancel(t.Context()), w.Postbox(), config) }()
	w.eventually(func() bool { return len(said.all()) > 0 }, "it says for what it waits")
	require.Regexp(t, `^Postbox waits for the end of all open transactions of the server, which may come into its log, and that of process \d+ of the server is open`, said.all()[0])
	require.Empty(t, removed)
	require.NoError(t, w.emitter("outbox").Publish("orders", keyed("meanwhile", "key")), "publishers do not wait")
	require.NoError(t, tx.Commit())
	require.ErrorContains(t, <-removed, "messages that were not stored")

	b := &broker{}
	f := w.reader(b)
	w.eventually(func() bool { return b.has("open", "meanwhile") }, "they are published")
	f.stop(t)
}

// The server lets others see a transaction with synchronous_commit = off before its end is on the disk, and reads only what is there.
func TestRemoveOutbox_G1_sees_messages_that_are_not_on_the_disk(t *testing.T) {
	t.Parallel()
	w := newOutboxWorldAlone(t)
	tx, _ := w.open("SET LOCAL synchronous_commit = off")
	require.NoError(t, w.emitter("outbox").Bind(tx).Publish("orders", keyed("asynchronous", "key")))
	require.NoError(t, tx.Commit())
	require.ErrorContains(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()), "messages that were not stored")
}

// It waits for each lock of the publication for a moment, so that publishers go on meanwhile.
func TestDiscardOutbox_says_for_what_it_waits(t *testing.T) {
	t.Parallel()
	w := newOutboxWorldAlone(t)
	w.onlyPublished() // otherwise publishers do not lock it
	tx, pid := w.open("SET LOCAL application_name = 'producer'")
	require.NoError(t, w.emitter("outbox").Bind(tx).Publish("orders", keyed("open", "key")))
	config, said := w.outboxConfig(), &waits{}
	config.Waits = said.say
	removed := make(chan error, 1)
	go func() { removed <- pgtail.DiscardOutbox(context.WithoutCancel(t.Context()), w.Postbox(), config) }()
	w.eventually(func() bool { return len(said.all()) > 0 }, "it says for what it waits")
	require.Equal(t, fmt.Sprintf("the publication %s is dropped when all transactions have ended that have published, and that of process %d of the server is open (role postgres, application_name %q)", w.permanentSlot(), pid, "producer"), said.all()[0])
	require.NoError(t, tx.Commit())
	require.NoError(t, <-removed)
}

// Processes that start at the same time may all set the log up.
func TestSetupOutbox_runs_in_several_processes_at_a_time(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	require.NoError(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	const processes = 5
	before := w.Count(t, "SELECT COUNT(*) FROM postbox_audit")
	ended := make(chan error, processes)
	for range processes {
		go func() { ended <- pgtail.SetupOutbox(context.WithoutCancel(t.Context()), w.Postbox(), w.outboxConfig()) }()
	}
	for range processes {
		require.NoError(t, <-ended)
	}
	require.Equal(t, before+1, w.Count(t, "SELECT COUNT(*) FROM postbox_audit"), "one of them has set it up")
	require.NoError(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
}

func TestSetupOutbox_says_that_it_waits_for_another_one(t *testing.T) {
	t.Parallel()
	w := newOutboxWorldAlone(t)
	require.NoError(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	open, _ := w.open()
	config, said, ended := w.outboxConfig(), &waits{}, make(chan error, 2)
	setUp := func(config pgtail.OutboxConfig) {
		go func() { ended <- pgtail.SetupOutbox(context.WithoutCancel(t.Context()), w.Postbox(), config) }()
	}
	setUp(config)
	w.eventually(func() bool {
		return w.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = "+permanentSlot) == 1
	}, "the slot is being made")
	config.Waits = said.say
	setUp(config)
	w.eventually(func() bool { return len(said.all()) > 0 }, "the other one says for what it waits")
	require.Regexp(t, `^Postbox waits for another process that sets up the log, and that of process \d+ of the server is open \(role `, said.all()[0])
	require.NoError(t, open.Rollback())
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
}

// A set-up does not rely on what it saw before it waited.
func TestSetupOutbox_sets_the_log_up_that_was_removed_while_it_waited(t *testing.T) {
	t.Parallel()
	w := newOutboxWorldAlone(t)
	other, err := w.DB.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	const setUpLock = 0x706f7374
	_, err = other.ExecContext(t.Context(), "SELECT pg_advisory_lock($1, 'postbox_messages'::regclass::oid::bigint::int)", setUpLock)
	require.NoError(t, err)
	config, said, ended := w.outboxConfig(), &waits{}, make(chan error, 1)
	config.Waits = said.say
	go func() { ended <- pgtail.SetupOutbox(context.WithoutCancel(t.Context()), w.Postbox(), config) }()
	w.eventually(func() bool { return len(said.all()) > 0 }, "it waits")
	require.NoError(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	_, err = other.ExecContext(t.Context(), "SELECT pg_advisory_unlock($1, 'postbox_messages'::regclass::oid::bigint::int)", setUpLock)
	require.NoError(t, err)
	require.NoError(t, <-ended)
	require.NoError(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
}

// The server does not end a prepared transaction by itself, and it belongs to no process.
func TestSetupOutbox_names_the_prepared_transaction_for_which_it_waits(t *testing.T) {
	t.Parallel()
	w := newOutboxWorldAlone(t)
	if w.Count(t, "SELECT current_setting('max_prepared_transactions')::int") == 0 {
		t.Skip("PostgreSQL with max_prepared_transactions is missing")
	}
	require.NoError(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	name := w.permanentSlot()
	tx, _ := w.open("SAVEPOINT s", "SELECT pg_current_xact_id()", "CREATE TABLE prepared (n int)")
	_, err := tx.ExecContext(t.Context(), "PREPARE TRANSACTION '"+name+"'")
	require.NoError(t, err)
	end := sync.OnceFunc(func() { _, _ = w.DB.Exec("ROLLBACK PREPARED '" + name + "'") }) //nolint:noctx // also after the end of the test
	t.Cleanup(end)
	_ = tx.Rollback() // there is none any more
	config, said, ended := w.outboxConfig(), &waits{}, make(chan error, 1)
	config.Waits = said.say
	go func() { ended <- pgtail.SetupOutbox(context.WithoutCancel(t.Context()), w.Postbox(), config) }()
	w.eventually(func() bool {
		all := said.all()
		return len(all) > 0 && strings.Contains(all[len(all)-1], fmt.Sprintf("the prepared transaction %q is open", name))
	}, "it is named, if no older transaction is open")
	end()
	require.NoError(t, <-ended)
}

// The times of a role or a database are for programs that wait for no transaction of others.
func TestSetupOutbox_waits_although_a_role_has_time_limits(t *testing.T) {
	t.Parallel()
	server := newOutboxWorld(t)
	for _, limit := range []string{"statement_timeout", "lock_timeout", "transaction_timeout"} {
		if server.Count(t, "SELECT COUNT(*) FROM pg_settings WHERE name = ?", limit) == 0 { // which came with version 17
			continue
		}
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			w := newOutboxWorldAlone(t)
			require.NoError(t, pgtail.RemoveOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
			w.limits(limit)
			tx, _ := w.open()
			w.waitsFor(tx, pgtail.SetupOutbox)
		})
	}
}

// Meanwhile another connection looks again and again which transactions are open, so that of the log is idle.
func TestRemoveOutbox_waits_although_a_role_has_time_limits(t *testing.T) {
	t.Parallel()
	w := newOutboxWorldAlone(t)
	w.limits("idle_session_timeout")
	tx, _ := w.open()
	w.waitsFor(tx, pgtail.RemoveOutbox)
}

// limits gives the sessions of the log a time limit.
func (w *world) limits(setting string) {
	w.Helper()
	var name string
	require.NoError(w, w.DB.QueryRowContext(w.Context(), "SELECT current_database()").Scan(&name))
	w.Exec(w.T, "ALTER DATABASE "+name+" SET "+setting+" = '2s'")
}

// waitsFor calls do, which waits for longer than that limit, until the transaction ends.
func (w *world) waitsFor(tx *sql.Tx, do func(context.Context, postbox.Database, pgtail.OutboxConfig) error) {
	w.Helper()
	config, said, ended := w.outboxConfig(), &waits{}, make(chan error, 1)
	config.Waits = said.say
	go func() { ended <- do(context.WithoutCancel(w.Context()), w.Postbox(), config) }()
	w.eventually(func() bool { return len(said.all()) > 0 || len(ended) > 0 }, "it waits for longer than that")
	require.NoError(w, tx.Commit())
	require.NoError(w, <-ended)
}
