package spool_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// lost is a layout that the first change of a spool makes. The database has gone back to a state before that change.
var lost = dialect.Layout{First: spool.MaxLanes, Lanes: 64}

// knowing returns the spool of a process that has read the layout just before the database went back.
func knowing(b *enginetest.Bench, layout dialect.Layout) *spool.Spool {
	id, err := b.Spool.Open(b.T.Context(), b.Database.DB)
	require.NoError(b.T, err)
	return spool.Registered(b.Statements, b.Spool.Name(), spool.Found{ID: id, Layout: layout})
}

// misplaced returns how many messages are in another lane than that of their key.
func misplaced(b *enginetest.Bench, layout dialect.Layout) (n int) {
	rows, err := b.Database.DB.QueryContext(b.T.Context(), "SELECT lane, ordering_key FROM postbox_messages")
	require.NoError(b.T, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var lane int
		var key []byte
		require.NoError(b.T, rows.Scan(&lane, &key))
		if lane != spool.LaneOf(layout, postbox.KeyHash(string(key))) {
			n++
		}
	}
	require.NoError(b.T, rows.Err())
	return n
}

// changeTo changes the layout of the spool at once.
func changeTo(b *enginetest.Bench, to dialect.Layout) {
	id, err := b.Spool.Open(b.T.Context(), b.Database.DB)
	require.NoError(b.T, err)
	require.NoError(b.T, spool.Run(b.T.Context(), b.Database.DB, b.Statements.SetLayout(id, b.Spool.Layout(), to)))
}

// ingest stores a message of each key in one commit.
func ingest(ctx context.Context, into *spool.Spool, db *sql.DB, prepared *spool.Prepared, claim string) error {
	var arrivals []spool.Arrival
	for _, key := range several {
		arrival, err := spool.NewArrival([]byte(claim+" "+key), enginetest.Draft(claim, key))
		if err != nil {
			return err
		}
		arrivals = append(arrivals, arrival)
	}
	_, err := into.Ingest(ctx, db, prepared, arrivals)
	return err
}

var several = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

// The new lanes have numbers of lanes that were lost. A process that still used the lost layout would write messages of a key into another lane than
// all other processes, and both lanes would count.
func TestLanes_G3_no_process_uses_a_layout_that_was_lost_after_another_change(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		known := knowing(b, lost)
		known.Age(spool.LayoutAge - time.Second)
		operator := operate.NewOperator(database.DB, b.Statements, operate.NewAuditor(b.Statements, ""), watermill.NopLogger{}).Settling(time.Second)
		_, err := operator.SetLanes(t.Context(), b.Spool.Name(), 48, func(operate.Progress) {})
		require.NoError(t, err)
		now := dialect.Layout{First: lost.First, Lanes: 48}
		for _, key := range several {
			require.NoError(t, spool.InTx(t.Context(), database.DB, b.Statements, func(tx *sql.Tx) error {
				return known.Append(t.Context(), tx, spool.Run, []spool.Draft{enginetest.Draft("in a transaction", key)})
			}))
			arrival, err := spool.NewArrival([]byte(key), enginetest.Draft("from a broker", key))
			require.NoError(t, err)
			again := knowing(b, lost)
			again.Age(spool.LayoutAge)
			_, err = again.Ingest(t.Context(), database.DB, nil, []spool.Arrival{arrival})
			require.NoError(t, err)
		}
		require.Equal(t, 2*len(several), b.Pending())
		require.Zero(t, misplaced(b, now))
	})
}

// A message from a broker waits for the only connection of its process until the layout that the process has read is too old.
func TestLanes_G3_a_message_from_a_broker_that_waited_for_a_connection_uses_no_lost_layout(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		now := dialect.Layout{First: lost.First, Lanes: 48}
		known := knowing(b, lost)
		changeTo(b, now)
		own := database.Open(t)
		own.SetMaxOpenConns(1)
		store := func(claim string, prepared *spool.Prepared) {
			known.Adopt(lost)
			conn, err := own.Conn(t.Context())
			require.NoError(t, err)
			waited, stored := own.Stats().WaitCount, make(chan error, 1)
			go func() { stored <- ingest(t.Context(), known, own, prepared, claim) }()
			b.Eventually(func() bool { return own.Stats().WaitCount > waited }, "it waits for the connection")
			known.Age(spool.LayoutAge)
			require.NoError(t, conn.Close())
			require.NoError(t, <-stored)
		}
		prepared := spool.NewPrepared(own)
		defer prepared.Close()
		store("unprepared", nil)
		store("new", prepared)
		store("prepared", prepared)
		require.Equal(t, 3*len(several), b.Pending())
		require.Zero(t, misplaced(b, now))
	})
}

// It waits for a transaction that has claimed the same message, and may commit or not.
func TestLanes_G3_a_message_from_a_broker_that_waited_for_a_claim_uses_no_lost_layout(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	b := enginetest.NewBench(t, database)
	now := dialect.Layout{First: lost.First, Lanes: 48}
	known := knowing(b, lost)
	changeTo(b, now)
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, spool.Run(t.Context(), tx, b.Statements.Ingest(0, [][]byte{[]byte("claim " + several[0])}, nil).Claim[0]))
	stored := make(chan error, 1)
	go func() { stored <- ingest(t.Context(), known, database.DB, nil, "claim") }()
	b.Eventually(func() bool {
		return database.Count(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'INSERT IGNORE INTO postbox_claims%'") == 1
	}, "it waits for the claim")
	known.Age(spool.LayoutAge)
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-stored)
	require.Equal(t, len(several), b.Pending())
	require.Zero(t, misplaced(b, now))
}

// A layout that was read lately is used without another query, and one that was not is read in each transaction until it is read apart.
func TestLanes_are_read_again_before_they_are_too_old(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := enginetest.NewBench(t, database)
	known := knowing(b, lost)
	open := func() (found spool.Found) {
		require.NoError(t, spool.InTx(t.Context(), database.DB, b.Statements, func(tx *sql.Tx) (err error) {
			found, err = known.OpenIn(t.Context(), tx)
			return err
		}))
		return found
	}
	require.Equal(t, lost, open().Layout)
	known.Age(spool.LayoutAge)
	require.Equal(t, dialect.Layout{Lanes: enginetest.Lanes}, open().Layout)
	require.Equal(t, lost, known.Layout(), "what a transaction sees is for that transaction alone")
	only := postbox.ExecFunc(func(context.Context, string, ...any) (int, error) { return 0, nil })
	found, err := known.OpenIn(t.Context(), only)
	require.NoError(t, err)
	require.Equal(t, lost, found.Layout, "it cannot ask")

	finder := spool.NewFinder(known, database.DB)
	defer finder.Close()
	finder.Look()
	b.Eventually(func() bool { return known.Layout() == dialect.Layout{Lanes: enginetest.Lanes} }, "it is read again")
	require.False(t, known.Aged())
	known.Age(spool.LayoutAge / 2)
	finder.Look()
	b.Eventually(func() bool { return !finder.Looking() }, "it is read again before a transaction has to")
	known.Age(spool.LayoutAge / 2)
	require.False(t, known.Aged())
}

// A drainer whose layout was lost finds another version, although the database has counted changes anew.
func TestLanes_G3_a_change_gives_no_version_a_second_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		id, err := b.Spool.Open(t.Context(), database.DB)
		require.NoError(t, err)
		change := func(to dialect.Layout) int {
			require.NoError(t, spool.Run(t.Context(), database.DB, b.Statements.SetLayout(id, dialect.Layout{Lanes: enginetest.Lanes}, to)))
			return database.Count(t, "SELECT version FROM postbox_spools")
		}
		first := change(lost)
		b.Eventually(func() bool { return database.Count(t, b.Statements.Clock) > first }, "time goes on, on SQLite in milliseconds")
		database.Exec(t, "UPDATE postbox_spools SET first_lane = 0, lanes = ?, version = 0", enginetest.Lanes) // it goes back
		require.Greater(t, change(dialect.Layout{First: lost.First, Lanes: 48}), first)
		database.Exec(t, "UPDATE postbox_spools SET first_lane = 0, lanes = ?, version = version + 1000000000", enginetest.Lanes) // its clock is behind
		before := database.Count(t, "SELECT version FROM postbox_spools")
		require.Equal(t, before+1, change(lost))
	})
}
