package spool_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// What runs in a transaction may be a user's hook. Its panic must reach whoever recovers, and not
// keep the only connection.
func TestInTx_G10_panic_gives_the_connection_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		database.DB.SetMaxOpenConns(1)
		require.PanicsWithValue(t, "oh no", func() {
			_ = spool.InTx(t.Context(), database.DB, b.Statements, func(tx *sql.Tx) error {
				b.Append(tx, enginetest.Draft("one", ""))
				panic("oh no")
			})
		})
		require.Zero(t, b.Pending(), "it is rolled back")
	})
}
