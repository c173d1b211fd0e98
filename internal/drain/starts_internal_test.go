package drain

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// counter is a drainer that holds a lane of suspects, of which it counts the starts.
type counter struct {
	*testing.T
	database *testdb.Database
	d        *Drainer
	suspects []*spool.Message
}

const counted = 20

func newCounter(t *testing.T, database *testdb.Database) *counter {
	t.Helper()
	own := newOutbox(t, database)
	drafts := make([]spool.Draft, counted)
	for i, key := range keysOf(0, counted) {
		drafts[i] = spool.Draft{Topic: "orders", MessageID: fmt.Sprint(i), Key: key}
	}
	require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, drafts))
	d, end := newStepped(database.DB, own, counted)
	t.Cleanup(end)
	c := &counter{T: t, database: database, d: d}
	require.NoError(t, c.d.tryOpen(t.Context()))
	require.NoError(t, c.d.upkeep(t.Context()))
	found, err := c.d.reader.fetch(t.Context(), c.d.reader.params([]int{0}, counted))
	require.NoError(t, err)
	require.Len(t, found.messages, counted)
	for _, m := range found.messages {
		m.Exposed, m.Spool = true, own
	}
	c.suspects = found.messages
	return c
}

// count counts all suspects as those of a batch, and returns why some were not counted.
func (c *counter) count() map[*spool.Message]error {
	c.Helper()
	batch := make([]*schedule.Entry, len(c.suspects))
	for i, m := range c.suspects {
		batch[i] = schedule.NewEntry(m)
	}
	return c.d.crashGuard.countStarts(c.Context(), batch)
}

// starts is how many messages have been started once; none may have been twice.
func (c *counter) starts() int {
	c.Helper()
	require.Zero(c, c.database.Count(c, "SELECT COUNT(*) FROM postbox_messages WHERE starts > 1"))
	return c.database.Count(c, "SELECT COUNT(*) FROM postbox_messages WHERE starts = 1")
}

func TestStarts_F5_counts_each_waiting_message_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		require.Empty(t, c.count())
		require.Equal(t, counted, c.starts())
		for _, m := range c.suspects {
			require.Equal(t, 1, m.Started)
		}
	})
}

// After a crash each message of a backlog is a suspect. One round trip for each would slow a batch
// down more than its handler does.
func TestStarts_G8_a_batch_of_suspects_is_counted_at_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		far, distance := database.OpenDistant(t)
		near := c.d.db
		c.d.db = far
		defer func() { c.d.db = near }()
		batch := make([]*schedule.Entry, len(c.suspects))
		for i, m := range c.suspects {
			batch[i] = schedule.NewEntry(m)
		}
		c.d.workers.handle(t.Context(), batch, make([]spool.Outcome, len(batch)))
		require.Less(t, distance.Trips(), counted)
		require.Equal(t, counted, c.starts())
		for _, m := range c.suspects {
			require.Equal(t, 1, m.Started)
			require.True(t, m.Counted)
		}
	})
}

func TestStarts_F5_counts_all_but_a_message_that_is_gone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		c.suspects[7].Ref.Token++ // as if another process held the lane
		uncounted := c.count()
		require.ErrorIs(t, uncounted[c.suspects[7]], spool.ErrLost)
		require.Len(t, uncounted, 1)
		require.Zero(t, c.suspects[7].Started)
		require.Equal(t, counted-1, c.starts())
	})
}

// The lane was lost while the message was handled, so its outcome cannot be written. It stays in
// memory for another step, and meanwhile the next holder may have counted a start of its own.
func TestStarts_F5_a_start_is_taken_back_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		require.Empty(t, c.count())
		lost := c.suspects[7]
		lost.Ref.Token--
		entry := schedule.NewEntry(lost)
		entry.Outcome = spool.Outcome{Verdict: spool.Retry, Err: errNotRemoved}
		c.d.settle.unsettled = []*schedule.Entry{entry}
		c.d.settle.start = func(work func()) { work() }
		require.NoError(t, c.d.settle.settleFinished(t.Context()))
		require.Equal(t, counted-1, c.starts())
		database.Exec(t, "UPDATE postbox_messages SET starts = 1 WHERE starts = 0")
		require.NoError(t, c.d.settle.settleFinished(t.Context()))
		require.Equal(t, counted, c.starts(), "the start of the next holder stands")
		require.Empty(t, c.d.settle.setbacks.resting)
	})
}

func TestStarts_F5_a_locked_row_holds_up_no_other_message(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), database.Bind("UPDATE postbox_messages SET attempts = attempts WHERE id = ?"), c.suspects[7].Ref.ID)
		require.NoError(t, err)
		uncounted := c.count()
		require.ErrorIs(t, uncounted[c.suspects[7]], spool.ErrRowLocked, "its worker does not wait either")
		require.Len(t, uncounted, 1)
		require.Zero(t, c.suspects[7].Started)
		require.Equal(t, counted-1, c.starts())
		require.NoError(t, tx.Rollback())
		c.suspects = c.suspects[7:8]
		require.Empty(t, c.count())
		require.Equal(t, counted, c.starts())
	})
}

// A lane whose lease is just being renewed is locked, and its messages are not.
func TestStarts_a_renewal_holds_up_no_lock(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		read := make([]dialect.AsRead, counted)
		for i, m := range c.suspects {
			read[i] = dialect.AsRead{Ref: m.Ref}
		}
		renewal, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = renewal.Rollback() }()
		_, err = renewal.ExecContext(t.Context(), "UPDATE postbox_members SET expires_at = expires_at + 1")
		require.NoError(t, err)

		tx, err := database.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: c.d.spool.Statements.Isolation})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		locked, err := spool.SelectIDs(t.Context(), tx, c.d.spool.Statements.LockAsRead(c.d.id.Load(), read))
		require.NoError(t, err)
		require.Len(t, locked, counted)
	})
}

// A transaction that was rolled back is run again, and what it counted the first time is not
// counted then.
func TestStarts_F5_a_start_that_a_conflict_rolled_back_is_not_counted(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	c := newCounter(t, database)
	var others *sql.Tx
	var commits atomic.Int64
	c.d.db = sql.OpenDB(conflicting{driver: database.DB.Driver(), dsn: database.DSN, commit: func(tx driver.Tx) error {
		switch commits.Add(1) {
		case 1:
			err := tx.Rollback()
			var begun, locked error
			if others, begun = database.DB.BeginTx(t.Context(), nil); begun == nil {
				_, locked = others.ExecContext(t.Context(), "SELECT 1 FROM postbox_messages FOR UPDATE")
			}
			return errors.Join(err, begun, locked, &pq.Error{Code: "40001"})
		case 2:
			return errors.Join(tx.Commit(), others.Rollback())
		default:
			return tx.Commit()
		}
	}})
	t.Cleanup(func() { _ = c.d.db.Close() })
	require.Len(t, c.count(), counted)
	require.EqualValues(t, 2, commits.Load(), "it was run again")
	require.Zero(t, c.starts())
	for _, m := range c.suspects {
		require.Zero(t, m.Started)
	}
}

// conflicting opens connections whose transactions end as commit says.
type conflicting struct {
	driver driver.Driver
	dsn    string
	commit func(driver.Tx) error
}

func (c conflicting) Driver() driver.Driver { return c.driver }

func (c conflicting) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	return conflictingConn{Conn: conn, commit: c.commit}, err
}

type conflictingConn struct {
	driver.Conn
	commit func(driver.Tx) error
}

func (c conflictingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	return conflictingTx{Tx: tx, commit: c.commit}, err
}

type conflictingTx struct {
	driver.Tx
	commit func(driver.Tx) error
}

func (tx conflictingTx) Commit() error { return tx.commit(tx.Tx) }
