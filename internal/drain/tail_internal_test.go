package drain

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// tailed is a drainer with a feed, whose steps a test takes and which has no workers. The test puts into the feed what
// the log would have.
type tailed struct {
	*testing.T
	*Drainer

	db     *testdb.Database
	server string
}

func newTailed(t *testing.T) *tailed {
	t.Helper()
	database := testdb.Postgres(t)
	own := newOutbox(t, database)
	d, end := newStepped(database.DB, own, 10*dialect.Lanes)
	t.Cleanup(end)
	d.configured.Feed = tail.NewFeed(tail.Limits{Messages: 20, Inline: 100, Bytes: 2000})
	d.configured.PollMax, d.config.PollMax = time.Hour, time.Hour
	d.startTailing()
	d.started = 1 << 20 // it never starts a worker
	require.NoError(t, d.tryOpen(t.Context()))
	w := &tailed{T: t, Drainer: d, db: database}
	require.NoError(t, database.DB.QueryRowContext(t.Context(), own.Statements.LogServer).Scan(&w.server, new(string), new(string)))
	return w
}

// begin begins the log, and polls until messages may be taken from it.
func (w *tailed) begin() {
	w.configured.Feed.Begin(w.server)
	w.polls(func() bool { return w.tailing.open })
}

// polls polls until a condition is met. Transactions of other tests keep a gap open for a while.
func (w *tailed) polls(condition func() bool) {
	w.Helper()
	deadline := time.Now().Add(time.Minute)
	for w.poll(); !condition(); w.poll() {
		require.True(w.T, time.Now().Before(deadline), "the condition is not met")
	}
}

// poll is a step with a poll, and with a mark if one is wanted.
func (w *tailed) poll() {
	w.pollAt, w.watermark.markAt = time.Time{}, time.Time{}
	w.step(w.Context())
	require.Empty(w.T, w.trouble.end)
}

// stepOnly is a step without a poll. It reports whether the drainer wants one.
func (w *tailed) stepOnly() (wantsPoll bool) {
	later := time.Now().Add(time.Hour)
	w.pollAt, w.watermark.markAt = later, later
	w.step(w.Context())
	return w.pollAt.Before(later)
}

// write stores messages without putting them into the feed, and returns the transaction.
func (w *tailed) write(tx *sql.Tx, drafts ...spool.Draft) (transaction uint32) {
	w.Helper()
	require.NoError(w.T, w.spool.Append(w.Context(), tx, spool.Run, drafts))
	require.NoError(w.T, tx.QueryRowContext(w.Context(), "SELECT (pg_current_xact_id()::text::bigint & 4294967295)::bigint").Scan(&transaction))
	return transaction
}

// commit stores messages in a transaction of their own.
func (w *tailed) commit(drafts ...spool.Draft) (transaction uint32) {
	w.Helper()
	tx := w.tx()
	transaction = w.write(tx, drafts...)
	require.NoError(w.T, tx.Commit())
	return transaction
}

func (w *tailed) tx() *sql.Tx {
	w.Helper()
	tx, err := w.db.DB.BeginTx(w.Context(), nil)
	require.NoError(w.T, err)
	w.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// log puts a stored message into the feed, as it is, or without a payload that is too large.
func (w *tailed) log(transaction uint32, name string, in rowQuerier) {
	w.Helper()
	m := tail.Message{Transaction: transaction, MessageID: name}
	var hash sql.NullInt64
	require.NoError(w.T, in.QueryRowContext(w.Context(), "SELECT spool, id, created_at, lane, key_hash, topic, payload, metadata FROM postbox_messages WHERE message_id = $1", []byte(name)).
		Scan(&m.Spool, &m.ID, &m.CreatedAt, &m.Lane, &hash, &m.Topic, &m.Payload, &m.Metadata))
	m.HasKey, m.KeyHash, m.Size = hash.Valid, hash.Int64, len(m.Payload)+len(m.Metadata)
	w.configured.Feed.Add(m)
}

// inMemory returns the messages that the drainer has, in the order of their ids.
func (w *tailed) inMemory() (names []string) {
	for _, m := range w.scheduler.Snapshot().Messages {
		names = append(names, m.MessageID)
	}
	return names
}

func order(name string) spool.Draft {
	return spool.Draft{Topic: "orders", MessageID: name, Key: "key", Payload: []byte(name)}
}

func TestTailing_takes_messages_without_a_read(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	w.log(w.commit(order("a"), spool.Draft{Topic: "orders", MessageID: "b", Payload: []byte("b")}), "a", w.db.DB)
	w.log(w.commit(order("c")), "c", w.db.DB)
	require.False(t, w.stepOnly())
	require.Equal(t, []string{"a", "c"}, w.inMemory(), "what was in the feed")
	w.poll()
	require.Equal(t, []string{"a", "b", "c"}, w.inMemory(), "once each")
}

func TestTailing_drops_what_a_read_has_seen(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	transaction := w.commit(order("a"))
	w.log(transaction, "a", w.db.DB)
	m := w.db.Count(t, "DELETE FROM postbox_messages RETURNING 1") // it was read, published and removed
	require.Equal(t, 1, m)
	w.poll()
	w.stepOnly()
	require.Empty(t, w.inMemory())
}

// The log is ahead of what sessions see.
func TestTailing_waits_until_a_message_is_visible(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	tx := w.tx()
	w.log(w.write(tx, order("a")), "a", tx)
	w.log(w.commit(spool.Draft{Topic: "orders", MessageID: "b", Payload: []byte("b")}), "b", w.db.DB)
	w.stepOnly()
	require.Empty(t, w.inMemory(), "later messages wait too")
	require.False(t, w.tailing.tryAt.IsZero(), "it looks again soon")
	require.NoError(t, tx.Commit())
	w.tailing.tryAt = time.Time{}
	w.stepOnly()
	require.Equal(t, []string{"a", "b"}, w.inMemory())
}

// Transaction a was open at the last complete read, and its message was lost in a gap. Message b depends on it.
// Also covers G3.
func TestTailing_G3_takes_nothing_before_a_gap_has_ended(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	tx := w.tx()
	w.write(tx, order("a"))
	w.configured.Feed.Begin(w.server)
	for range 3 {
		w.poll() // a is not visible
	}
	require.False(t, w.tailing.open)
	require.NoError(t, tx.Commit())
	w.log(w.commit(order("b")), "b", w.db.DB)
	require.True(t, w.stepOnly(), "it wants to poll")
	require.Empty(t, w.inMemory(), "b alone must not be taken")
	w.polls(func() bool { return w.tailing.open })
	require.Equal(t, []string{"a", "b"}, w.inMemory())
}

// Also covers G3.
func TestTailing_G3_leaves_a_key_to_the_poll_after_a_large_message(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	large := order("a")
	large.Payload = make([]byte, 1000)
	w.log(w.commit(large), "a", w.db.DB)
	w.log(w.commit(order("b")), "b", w.db.DB)
	other := order("c")
	other.Key = "other"
	w.log(w.commit(other), "c", w.db.DB)
	require.True(t, w.stepOnly(), "it wants to poll")
	require.Equal(t, []string{"c"}, w.inMemory())
	w.poll()
	require.Equal(t, []string{"a", "b", "c"}, w.inMemory())
	w.log(w.commit(order("d")), "d", w.db.DB)
	w.stepOnly()
	require.Equal(t, []string{"a", "b", "c", "d"}, w.inMemory(), "after the poll the key is free")
}

// Also covers G3.
func TestTailing_G3_leaves_a_key_to_the_poll_whose_message_waits(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.commit(order("a"))
	w.db.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 1, available_at = 4611686018427387904")
	w.db.MoveWaiting(t)
	w.begin()
	w.log(w.commit(order("b")), "b", w.db.DB)
	w.stepOnly()
	w.poll()
	require.Empty(t, w.inMemory())
}

// Also covers G3.
func TestTailing_G3_takes_nothing_of_lanes_that_must_be_read_again(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	w.commit(order("a"))
	w.lanes.rewind()
	w.log(w.commit(order("b")), "b", w.db.DB)
	require.True(t, w.stepOnly(), "it wants to poll")
	require.Empty(t, w.inMemory())
	w.poll()
	require.Equal(t, []string{"a", "b"}, w.inMemory())
}

func TestTailing_takes_nothing_from_the_log_of_another_server(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.server = "another"
	w.begin()
	w.log(w.commit(order("a")), "a", w.db.DB)
	require.True(t, w.stepOnly(), "it wants to poll")
	require.Empty(t, w.inMemory())
	require.False(t, w.tailing.open)
}

func TestTailing_takes_nothing_during_a_pause(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	w.db.Exec(t, "UPDATE postbox_spools SET paused_at = 1, version = version + 1")
	w.log(w.commit(order("a")), "a", w.db.DB)
	w.stepOnly() // hears of the pause
	w.stepOnly()
	require.Empty(t, w.inMemory())
	require.True(t, w.control.paused)
}
