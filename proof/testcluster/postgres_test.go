package testcluster_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

func startPostgres(t *testing.T) (*testcluster.Postgres, *sql.DB) {
	t.Helper()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	db, err := sql.Open("postgres", p.DSN("postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), "CREATE TABLE numbers (n int)")
	require.NoError(t, err)
	return p, db
}

func insert(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), "INSERT INTO numbers SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM numbers WHERE n = $1)", n)
		require.NoError(c, err)
	}, time.Minute, 20*time.Millisecond)
}

func numbers(t *testing.T, db *sql.DB) (found string) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COALESCE(string_agg(n::text, ' ' ORDER BY n), '') FROM numbers").Scan(&found))
	return found
}

func TestPostgres_fails_over_without_loss_and_with_and_goes_back_in_time(t *testing.T) {
	t.Parallel()
	p, db := startPostgres(t)

	require.NoError(t, p.Synchronize(t.Context()))
	insert(t, db, 1)
	require.NoError(t, p.Stop(true))
	p.Relay.Cut()
	require.Error(t, p.Restore(t.Context()), "there is no backup")
	require.NoError(t, p.Promote(t.Context()))
	p.Relay.Move(p.Address())
	insert(t, db, 2)
	require.Equal(t, "1 2", numbers(t, db), "a synchronous standby has all that was confirmed")
	require.NoError(t, p.Rebuild(t.Context()))

	require.Error(t, p.Promote(t.Context()), "the primary runs")
	require.NoError(t, p.Sever(t.Context()))
	insert(t, db, 3)
	require.NoError(t, p.Stop(true))
	p.Relay.Cut()
	require.NoError(t, p.Promote(t.Context()))
	p.Relay.Move(p.Address())
	insert(t, db, 4)
	require.Equal(t, "1 2 4", numbers(t, db), "an asynchronous standby that was cut off has not")
	require.NoError(t, p.Rebuild(t.Context()))

	require.NoError(t, p.Backup())
	insert(t, db, 5)
	require.NoError(t, p.Stop(true))
	require.NoError(t, p.Restore(t.Context()))
	insert(t, db, 6)
	require.Equal(t, "1 2 4 6", numbers(t, db))
	require.NoError(t, p.Rebuild(t.Context()))
	require.NoError(t, p.Sever(t.Context()), "the standbys follow the restored primary")
}
