package drain

import (
	"database/sql"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// tailed is a drainer with a feed, whose steps a test takes and which has no workers. The test puts
// into the feed what the log would tell.
type tailed struct {
	*testing.T
	*Drainer

	db      *testdb.Database
	written map[uint32]int // the lane of the last message of each transaction
}

func newTailed(t *testing.T) *tailed {
	t.Helper()
	database := testdb.Postgres(t)
	own := newOutbox(t, database)
	d, end := newStepped(database.DB, own, 10*dialect.Lanes)
	t.Cleanup(end)
	d.configured.Feed = tail.NewFeed()
	d.configured.PollMax, d.config.PollMax = time.Hour, time.Hour
	d.tailing.feed = d.configured.Feed
	d.workers.started = 1 << 20 // it never starts a worker
	require.NoError(t, d.tryOpen(t.Context()))
	t.Cleanup(d.tailing.others.Close)
	return &tailed{T: t, Drainer: d, db: database, written: map[uint32]int{}}
}

// begin begins the log, and polls until the next poll is far away.
func (w *tailed) begin() {
	w.configured.Feed.Begin()
	w.configured.Feed.Tell(true)
	w.configured.Feed.Hear(time.Now().Add(time.Hour))
	w.polls(func() bool { return !w.reader.watermark.unset() && !w.reader.watermark.pending })
}

// polls polls until a condition is met. Transactions of other tests keep a mark pending for a
// while.
func (w *tailed) polls(condition func() bool) {
	w.Helper()
	deadline := time.Now().Add(time.Minute)
	for w.poll(); !condition(); w.poll() {
		require.True(w.T, time.Now().Before(deadline), "the condition is not met")
	}
}

// poll is a step with a poll, and with a mark if one is wanted.
func (w *tailed) poll() {
	w.pace.at, w.reader.watermark.markAt = time.Time{}, time.Time{}
	w.step(w.Context())
	require.Empty(w.T, w.trouble.end)
}

// stepOnly is a step without a poll, unless the log tells something.
func (w *tailed) stepOnly() {
	w.Helper()
	w.pace.at, w.pace.notBefore = time.Now().Add(time.Hour), time.Time{}
	w.step(w.Context())
	require.Empty(w.T, w.trouble.end)
}

// write stores messages without telling the feed, and returns the transaction.
func (w *tailed) write(tx *sql.Tx, drafts ...spool.Draft) (transaction uint32) {
	w.Helper()
	require.NoError(w.T, w.spool.Append(w.Context(), tx, spool.Run, drafts))
	var lane int
	require.NoError(w.T, tx.QueryRowContext(w.Context(), "SELECT (pg_current_xact_id()::text::bigint & 4294967295)::bigint").Scan(&transaction))
	require.NoError(w.T, tx.QueryRowContext(w.Context(), "SELECT lane FROM postbox_messages ORDER BY id DESC LIMIT 1").Scan(&lane))
	w.written[transaction] = lane
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

// tell tells the feed of a transaction that has stored a message.
func (w *tailed) tell(transaction uint32) {
	w.configured.Feed.Add(tail.Change{Transaction: transaction, Spool: w.id.Load(), Message: true, Lane: w.written[transaction]})
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

func TestTailing_polls_when_the_log_tells_of_a_message(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	transaction := w.commit(order("a"))
	w.stepOnly()
	require.Empty(t, w.inMemory(), "nothing has told of it")
	w.configured.Feed.Add(tail.Change{Transaction: transaction, Spool: w.id.Load() + 1, Message: true})
	w.stepOnly()
	require.Empty(t, w.inMemory(), "that was of another outbox")
	w.tell(transaction)
	w.stepOnly()
	require.Equal(t, []string{"a"}, w.inMemory())
	require.True(t, w.pace.at.After(time.Now().Add(time.Minute)), "the poll of all lanes is as far away as before")
}

func TestTailing_does_not_poll_for_what_a_read_has_seen(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	transaction := w.commit(order("a"))
	w.poll()
	w.commit(order("b"))
	w.tell(transaction)
	w.stepOnly()
	require.Equal(t, []string{"a"}, w.inMemory())
}

// The log is ahead of what sessions see, and a poll for one transaction says nothing of another.
func TestTailing_polls_until_each_transaction_is_visible(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	tx := w.tx()
	w.tell(w.write(tx, order("a")))
	w.tell(w.commit(spool.Draft{Topic: "orders", MessageID: "b"}))
	for range 10 {
		w.stepOnly()
		require.Equal(t, []string{"b"}, w.inMemory())
		require.False(t, w.pace.at.After(later(w.pace.notBefore, time.Now().Add(invisibleMax))), "the next poll comes soon")
		w.configured.Feed.Add(tail.Change{Spool: w.id.Load()}) // it is time for it
	}
	require.NoError(t, tx.Commit())
	for tries := 0; w.configured.Feed.Pending(); tries++ { // a read may be thrown away, since it finds that one has ended late
		require.Less(t, tries, 100)
		w.poll()
	}
	require.Equal(t, []string{"a", "b"}, w.inMemory())
	require.Zero(t, w.tailing.pause, "there is nothing more to wait for")
}

// What a log told that is not read any more may be of a server that is gone.
func TestTailing_forgets_what_another_log_has_told(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	w.tell(1 << 30)
	w.stepOnly()
	require.True(t, w.configured.Feed.Pending(), "no read sees it")
	w.begin()
	require.False(t, w.configured.Feed.Pending())
}

// The process that reads the log wakes the others, when they can see what it has told.
func TestTailing_wakes_other_processes(t *testing.T) {
	t.Parallel()
	w := newTailed(t)
	w.begin()
	listener := pq.NewListener(w.db.DSN, time.Second, time.Second, nil)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	require.NoError(t, listener.Listen(w.spool.Channel()))
	w.db.Exec(t, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'two', '', 9e15 FROM postbox_spools")
	w.poll()
	require.Equal(t, 2, w.lease.members)
	w.tell(w.commit(order("a")))
	w.stepOnly()
	select {
	case <-listener.Notify:
	case <-time.After(time.Minute):
		require.Fail(t, "no NOTIFY came")
	}
}
