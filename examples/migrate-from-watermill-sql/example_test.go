package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The example verifies itself. The second run begins anew.
func TestRun_G2_G3(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	require.NoError(t, run(t.Context(), database.DSN))
	require.NoError(t, run(t.Context(), database.DSN))
	require.Equal(t, oldOrders+newOrders, database.Count(t, invoices))
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM migration_example_messages"))
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM migration_example_dead_letters"))
}
