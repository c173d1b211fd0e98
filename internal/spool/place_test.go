package spool_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Several callers ask at the same time, and one of them gets the only connection first: the others use its answer.
func TestPlace_G4_tells_databases_apart_while_others_ask(t *testing.T) {
	t.Parallel()
	ours := testdb.SQLite(t).Migrate(t)
	statements, err := spool.StatementsIn(ours.Postbox())
	require.NoError(t, err)
	check := func(place *spool.Place, database *testdb.Database) error {
		tx, err := database.Open(t).BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		return place.Check(t.Context(), tx)
	}
	for range 20 {
		own := ours.Open(t)
		place := spool.NewPlace(own, statements)
		conn, err := own.Conn(t.Context())
		require.NoError(t, err)
		var group sync.WaitGroup
		foreign, local := make(chan error, 5), make(chan error, 1)
		for range 4 {
			group.Go(func() { place.Learn(t.Context()) })
		}
		for range cap(foreign) { // transactions of one SQLite database exclude each other
			theirs := testdb.SQLite(t).Migrate(t)
			group.Go(func() { foreign <- check(place, theirs) })
		}
		group.Go(func() { local <- check(place, ours) })
		require.Eventually(t, func() bool { return own.Stats().WaitCount >= 8 }, time.Minute, time.Millisecond)
		require.NoError(t, conn.Close())
		group.Wait()
		require.NoError(t, <-local)
		for range cap(foreign) {
			require.ErrorIs(t, <-foreign, spool.ErrElsewhere)
		}
		require.NoError(t, own.Close())
	}
}
