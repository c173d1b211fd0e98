package spool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A user's transaction has read something, a forwarder registers the outbox, and then the transaction publishes: on
// MySQL its reads still show the database without the outbox.
func TestOpen_spool_registered_by_another_after_the_transaction_began(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		if database.Dialect == postbox.SQLite {
			return // it has one writer: nobody registers meanwhile
		}
		b := newBench(t, database)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var n int
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM postbox_messages").Scan(&n))

		another := spool.New(b.statements, b.spool.Name(), lanes)
		_, err = another.Open(t.Context(), database.DB)
		require.NoError(t, err)

		b.append(tx, draft("1", ""))
		require.NoError(t, tx.Commit())
		require.Equal(t, 1, b.pending())
	})
}
