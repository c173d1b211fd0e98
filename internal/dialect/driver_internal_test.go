package dialect

import (
	"database/sql"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// A connection that is given up while its status is read crashed the process: database/sql reads
// its own field after it was set to nil.
func TestTxStatusOf_a_connection_that_is_given_up_meanwhile(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for range 3000 {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		var both sync.WaitGroup
		both.Go(func() { _ = conn.Close() })
		both.Go(func() {
			for range 20 {
				require.Equal(t, TxUnknown, TxStatusOf(conn))
			}
		})
		both.Wait()
	}
}
