package testdb

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/pgxbox"
)

// openPool opens a handle on a pool where a test wants the driver of pgx: scripts/through-pgxbox
// adds this file to the package.
func openPool(tb testing.TB, driver, dsn string) (*sql.DB, error) {
	tb.Helper()
	if driver != postgresPGX.driver {
		return sql.Open(driver, dsn)
	}
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(tb, err)
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pgxbox.Database(pool).DB, nil
}
