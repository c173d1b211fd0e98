package testcluster_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

func TestMariaDB_promotes_a_replica_that_lags(t *testing.T) {
	t.Parallel()
	m, err := testcluster.StartMariaDB(t.Context())
	clustertest.Require(t, m, err)
	db, err := sql.Open("mysql", m.DSN("postbox"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	exec := func(statement string) {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	exec("CREATE TABLE numbers (n int)")
	exec("INSERT INTO numbers VALUES (1)")
	require.NoError(t, m.Sever(t.Context()))
	exec("INSERT INTO numbers VALUES (2)")
	require.Error(t, m.Promote(t.Context()), "the primary runs")
	m.Relay.Cut()
	require.NoError(t, m.Stop())
	require.NoError(t, m.Promote(t.Context()))
	m.Relay.Move(m.Address())
	exec("INSERT INTO numbers VALUES (3)")
	var found string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT GROUP_CONCAT(n ORDER BY n) FROM numbers").Scan(&found))
	require.Equal(t, "1,3", found)
}
