package spool_test

import (
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Several callers ask at the same time, and one of them gets the only connection first: the others
// use its answer.
func TestPlace_G4_tells_databases_apart_while_others_ask(t *testing.T) {
	t.Parallel()
	ours := testdb.SQLite(t).Migrate(t)
	statements, err := spool.StatementsIn(ours.Postbox())
	require.NoError(t, err)
	begin := func(database *testdb.Database) *sql.Tx {
		tx, err := database.Open(t).BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	here := begin(ours)
	var elsewhere []*sql.Tx
	for range 5 { // transactions of one SQLite database exclude each other
		elsewhere = append(elsewhere, begin(testdb.SQLite(t).Migrate(t)))
	}
	for range 20 {
		own := ours.Open(t)
		place := spool.NewPlace(own, statements)
		conn, err := own.Conn(t.Context())
		require.NoError(t, err)
		var group sync.WaitGroup
		foreign, local := make(chan error, len(elsewhere)), make(chan error, 1)
		for range 4 {
			group.Go(func() { place.Learn(t.Context()) })
		}
		for _, tx := range elsewhere {
			group.Go(func() { foreign <- place.Check(t.Context(), tx) })
		}
		group.Go(func() { local <- place.Check(t.Context(), here) })
		require.Eventually(t, func() bool { return own.Stats().WaitCount >= 8 }, time.Minute, time.Millisecond)
		require.NoError(t, conn.Close())
		group.Wait()
		require.NoError(t, <-local)
		for range elsewhere {
			require.ErrorIs(t, <-foreign, spool.ErrElsewhere)
		}
		require.NoError(t, own.Close())
	}
}

// Another goroutine reads the identity just after the caller has found none, and then needs the
// only connection, perhaps until the transaction of the caller ends.
func TestPlace_G4_needs_no_connection_for_what_another_has_just_read(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(t, err)
	place := spool.NewPlace(database.DB, statements)
	place.Learn(t.Context())
	database.DB.SetMaxOpenConns(1)
	conn, err := database.DB.Conn(t.Context())
	require.NoError(t, err)
	identity, err := place.AskUnaware(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	var stored string
	require.NoError(t, database.DB.QueryRowContext(t.Context(), statements.Identity).Scan(&stored))
	require.Equal(t, stored, identity)
}
