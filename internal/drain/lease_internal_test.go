package drain

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// leasing returns a drainer that has all lanes, and their tokens.
func leasing(t *testing.T, database *testdb.Database) (d *Drainer, tokens map[int]int64) {
	t.Helper()
	d, end := newStepped(database.DB, newOutbox(t, database), 10)
	t.Cleanup(end)
	require.NoError(t, d.tryOpen(t.Context()))
	require.NoError(t, d.upkeep(t.Context()))
	require.Len(t, d.lanes.held, dialect.Lanes)
	tokens = map[int]int64{}
	for number, l := range d.lanes.held {
		tokens[number] = l.token
	}
	return d, tokens
}

// Another process found that the lease was over, deleted the member, and is about to take its
// lanes, when this one comes back. It may keep none of them under the token that it had: the other
// one knows the members from before it came back.
func TestLease_G6_a_member_that_was_deleted_has_no_lane_any_more(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		d, tokens := leasing(t, database)
		database.Exec(t, "DELETE FROM postbox_members")
		require.NoError(t, d.upkeep(t.Context()))
		require.Len(t, d.lanes.held, dialect.Lanes, "it takes them again")
		for number, l := range d.lanes.held {
			require.Greater(t, l.token, tokens[number])
			require.True(t, l.suspect, "a message that runs still may crash it")
		}
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_members"))
	})
}

// While a process looks for lanes on MariaDB or MySQL, which takes it two statements, another one
// joins and takes them.
func TestLease_G6_a_lane_is_not_taken_that_somebody_has_taken_meanwhile(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	d, _ := leasing(t, database)
	statements := d.spool.Statements
	database.Exec(t, "DELETE FROM postbox_members")
	require.NoError(t, spool.InTx(t.Context(), database.DB, statements, func(tx *sql.Tx) error {
		free, err := d.lease.freeLanes(t.Context(), tx, statements.FreeLanes(d.id.Load(), dialect.Lanes))
		require.NoError(t, err)
		require.Len(t, free, dialect.Lanes)
		database.Exec(t, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'quick', '{}', ? FROM postbox_spools", time.Now().Add(time.Hour).UnixMicro())
		database.Exec(t, "UPDATE postbox_lanes SET holder = 'quick', token = token + 1 WHERE lane <> 5")
		locked, err := spool.SelectIDs(t.Context(), tx, statements.LockLanes(d.id.Load(), free))
		require.NoError(t, err)
		require.Equal(t, map[int64]bool{5: true}, locked)
		return nil
	}))
}

// A lease that is over is renewed all the same, as long as no process has looked for lanes.
func TestLease_G6_a_lease_that_is_over_is_renewed_if_nobody_wanted_the_lanes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		d, tokens := leasing(t, database)
		database.Exec(t, "UPDATE postbox_members SET expires_at = 1")
		require.NoError(t, d.upkeep(t.Context()))
		for number, l := range d.lanes.held {
			require.Equal(t, tokens[number], l.token)
		}
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_members WHERE expires_at = 1"))
	})
}

// A renewal changes one row, whatever a transaction of a handler has read or locked of the lanes.
func TestLease_F25_a_renewal_changes_no_lane(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		d, _ := leasing(t, database)
		handler, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = handler.Rollback() }()
		var lane int
		require.NoError(t, handler.QueryRowContext(t.Context(), "SELECT lane FROM postbox_lanes WHERE lane = 0 FOR UPDATE").Scan(&lane))
		require.NoError(t, d.upkeep(t.Context()))
		require.Len(t, d.lanes.held, dialect.Lanes)
	})
}

// A process takes over the lanes of a crashed one, and is cut off from the database before its
// first commit. The server keeps its session, and what it has locked, for hours.
func TestLease_F25_a_process_that_is_cut_off_while_it_takes_over_stops_no_other_one(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		d, _ := leasing(t, database)
		database.Exec(t, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'crashed', '{}', 1 FROM postbox_spools")
		database.Exec(t, "UPDATE postbox_lanes SET holder = 'crashed' WHERE lane > 15")
		_, err := d.lease.learn(t.Context())
		require.NoError(t, err)
		require.Len(t, d.lanes.held, 16)

		db, gate := database.OpenGated(t)
		other, end := newStepped(db, spool.New(d.spool.Statements, "outbox"), 10)
		other.config.Holder = "cut off"
		require.NoError(t, other.tryOpen(t.Context()))
		cutOff, over := make(chan struct{}, 1), make(chan struct{})
		gate.AtCommit(func(func() error) error {
			cutOff <- struct{}{}
			<-over
			return driver.ErrBadConn
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := other.upkeep(t.Context()); err != nil {
				cutOff <- struct{}{}
			}
		}()
		t.Cleanup(func() {
			close(over)
			<-done
			end()
		})
		select {
		case <-cutOff:
		case <-done: // it needs no transaction
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, d.upkeep(ctx))
		require.False(t, d.scheduler.Snapshot().LeaseOver)
	})
}

// What other members do is compared after the lease has been extended.
func TestLease_G6_is_extended_although_the_other_members_cannot_be_read(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	d, end := newStepped(database.DB, newOutbox(t, database), 10)
	t.Cleanup(end)
	require.NoError(t, d.tryOpen(t.Context()))
	statement := d.spool.Statements.Members
	d.spool.Statements.Members, d.lease.members = "SELECT nothing", 2
	require.True(t, d.scheduler.Snapshot().LeaseOver)
	require.ErrorContains(t, d.upkeep(t.Context()), "read the members")
	require.False(t, d.scheduler.Snapshot().LeaseOver)
	require.Zero(t, d.lease.others.members, "they are read again")
	d.spool.Statements.Members = statement
	require.NoError(t, d.upkeep(t.Context()))
	require.Equal(t, 2, d.lease.others.members)
}
