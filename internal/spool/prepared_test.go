package spool_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A publisher may be closed in a transaction that has the only connection of the pool, for which
// the statement that it prepares waits.
func TestPrepared_G10_closes_while_the_caller_has_the_only_connection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		db := database.Migrate(t).Open(t)
		db.SetMaxOpenConns(1)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		prepared := spool.NewPrepared(db)
		_, err = prepared.InTx(t.Context(), tx, dialect.Query{Text: "DELETE FROM postbox_messages"})
		require.NoError(t, err)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			prepared.Close()
		}()
		select {
		case <-closed:
		case <-time.After(enginetest.Patience):
			require.FailNow(t, "it waits for the connection that the transaction has")
		}
	})
}
