package drain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestSweep_takes_steps_of_a_bounded_time(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := sweep{span: firstSpan}
	s.stepped(10_000, 1_000_000, now, 2*sweepStep)
	require.EqualValues(t, 10_000, s.after)
	require.EqualValues(t, firstSpan/2, s.span, "it took too long")
	require.False(t, s.due(now.Add(sweepStep)))
	require.True(t, s.due(now.Add(2*sweepStep*sweepShare)))
	s.stepped(15_000, 1_000_000, now, sweepStep)
	require.EqualValues(t, firstSpan/2, s.span)
	s.stepped(20_000, 1_000_000, now, sweepStep/4)
	require.EqualValues(t, 2*firstSpan, s.span, "there was little to pass over")
	s.stepped(1_000_000, 1_000_000, now, sweepStep/4)
	require.Zero(t, s.after, "the round is over")
	require.False(t, s.due(now.Add(sweepInterval/2)))
	require.True(t, s.due(now.Add(sweepInterval)))
	s.stepped(1_000_000, 1_000_000, now, sweepInterval)
	require.False(t, s.due(now.Add(sweepInterval)), "one that took long, by a lock for example, rests longer")
}

func TestSweep_that_fails_is_tried_again_later_and_later(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := sweep{span: firstSpan}
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		s.stopped(now)
		now = now.Add(pause*time.Second - 1) //nolint:durationcheck // the number is of that unit
		require.False(t, s.due(now))
		now = now.Add(1)
		require.True(t, s.due(now))
	}
	require.EqualValues(t, leastSpan, s.span)
	s.stepped(100, 1000, now, 0)
	s.stopped(now)
	require.True(t, s.due(now.Add(time.Second)), "after a step that worked it begins anew")
}

// sweepLog keeps what is reported of sweeps.
type sweepLog struct {
	watermill.NopLogger

	errs     []error
	messages []string
}

func (l *sweepLog) Error(msg string, err error, _ watermill.LogFields) {
	if strings.HasPrefix(msg, "Postbox could not search its table") {
		l.errs, l.messages = append(l.errs, err), append(l.messages, msg)
	}
}

// A step fails since the pool has no connection for it, or since its statement waits for a lock on
// the table.
func TestSweep_distinguishes_a_busy_pool_from_a_slow_statement(t *testing.T) {
	t.Parallel()
	lock := map[postbox.Dialect]string{
		postbox.PostgreSQL: "LOCK TABLE postbox_messages IN ACCESS EXCLUSIVE MODE", postbox.MySQL: "LOCK TABLES postbox_messages WRITE",
	}
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		db := database.Open(t)
		db.SetMaxOpenConns(1)
		d, end := newStepped(db, newOutbox(t, database), 10)
		defer end()
		require.NoError(t, d.tryOpen(t.Context()))
		d.step(t.Context())
		d.lanes.held[0].cursor = 1000 // there is something to sweep
		reported := func() string {
			log := &sweepLog{}
			d.logger, d.reader.sweeping = log, sweep{}
			d.reader.sweep(t.Context(), []int{0})
			require.Empty(t, log.messages, "a step that fails once")
			d.reader.sweeping.next = time.Time{}
			d.reader.sweep(t.Context(), []int{0})
			require.Len(t, log.messages, 1)
			return log.messages[0]
		}

		taken, err := db.Conn(t.Context())
		require.NoError(t, err)
		said := reported()
		require.Contains(t, said, "no free connection")
		require.NotContains(t, said, "statement_timeout")
		require.NoError(t, taken.Close())

		locker, err := database.DB.Conn(t.Context())
		require.NoError(t, err)
		defer func() { _ = locker.Close() }()
		_, err = locker.ExecContext(t.Context(), "BEGIN")
		require.NoError(t, err)
		_, err = locker.ExecContext(t.Context(), lock[database.Dialect])
		require.NoError(t, err)
		said = reported()
		require.Contains(t, said, "statement_timeout")
		require.NotContains(t, said, "no free connection")
		_, err = locker.ExecContext(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		if database.Dialect == postbox.MySQL {
			_, err = locker.ExecContext(t.Context(), "UNLOCK TABLES")
			require.NoError(t, err)
		}
	})
}

// A search must not delay a message that was just committed. What it finds is read immediately
// afterwards.
func TestSweep_comes_after_the_read(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		own := newOutbox(t, database)
		d, end := newStepped(database.Open(t), own, 20)
		t.Cleanup(end)
		d.configured.Workers = 0
		d.reader.sweeping.next = time.Now().Add(time.Hour)
		require.NoError(t, d.tryOpen(t.Context()))
		write := func(id string) {
			require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, []spool.Draft{{Topic: "orders", MessageID: id}}))
		}
		inMemory := func() (ids []string) {
			for _, m := range d.scheduler.Snapshot().Messages {
				ids = append(ids, m.MessageID)
			}
			return ids
		}
		write("freed")
		require.Eventually(t, func() bool {
			d.pace.at = time.Time{}
			d.step(t.Context())
			return d.lanes.held[0].cursor > 0
		}, time.Minute, time.Millisecond)
		d.scheduler.DropAll() // as if it had not been readable when the cursor passed it

		write("new")
		d.pace.at, d.reader.sweeping.next = time.Time{}, time.Time{}
		d.step(t.Context())
		require.Equal(t, []string{"new"}, inMemory())
		require.Zero(t, d.pace.at, "there is something to read")
		d.step(t.Context())
		require.ElementsMatch(t, []string{"freed", "new"}, inMemory())
	})
}

// An open transaction keeps the index entries of all that went through. Passing over them takes
// longer than the role may take for a statement; a read from the cursor does not.
func TestDrainer_goes_on_reading_while_no_sweep_can_finish_on_postgres(t *testing.T) {
	t.Parallel()
	const entries = 300_000
	database := testdb.Postgres(t)
	db := database.Open(t)
	db.SetMaxOpenConns(1)
	own := newOutbox(t, database)
	d, end := newStepped(db, own, 20)
	t.Cleanup(end)
	d.configured.Workers = 0
	log := &sweepLog{}
	d.logger = log
	require.NoError(t, d.tryOpen(t.Context()))
	database.Exec(t, "ALTER TABLE postbox_messages SET (autovacuum_enabled = false)")
	open, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = open.Rollback() }()
	_, err = open.ExecContext(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	database.Exec(t, `INSERT INTO postbox_messages (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
		SELECT ?, 0, 0, 0, 0, 'orders', '', '', '{}' FROM generate_series(1, ?)`, d.id.Load(), entries)
	database.Exec(t, "DELETE FROM postbox_messages")
	write := func(id string) {
		require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, []spool.Draft{{Topic: "orders", MessageID: id}}))
	}
	read := func(id string) bool {
		d.pace.at = time.Time{}
		d.step(t.Context())
		for _, m := range d.scheduler.Snapshot().Messages {
			if m.MessageID == id {
				return true
			}
		}
		return false
	}
	d.reader.sweeping.next = time.Now().Add(time.Hour)
	write("before")
	require.Eventually(t, func() bool { return read("before") && d.lanes.held[0].cursor >= entries }, time.Minute, time.Millisecond)

	_, err = db.ExecContext(t.Context(), "SET statement_timeout = 15")
	require.NoError(t, err)
	d.reader.sweeping = sweep{span: largestSpan}
	for n := range 5 {
		d.reader.sweeping.span, d.reader.sweeping.next = largestSpan, time.Time{}
		write(fmt.Sprint(n))
		require.Eventually(t, func() bool { return read(fmt.Sprint(n)) }, time.Minute, time.Millisecond)
	}
	require.Len(t, log.errs, 1, "it is reported once")
	var state interface{ SQLState() string }
	require.ErrorAs(t, log.errs[0], &state)
	require.Equal(t, "57014", state.SQLState())

	// In smaller steps a sweep gets through all the same.
	require.Eventually(t, func() bool {
		d.reader.sweeping.next = time.Time{}
		read("none")
		return d.reader.sweeping.after == 0
	}, time.Minute, time.Millisecond)
}
