package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The example verifies itself. The second run begins anew.
// Also covers G3.
func TestRun_G2_transfers_each_message_once_and_in_order(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	require.NoError(t, run(t.Context(), database.DSN))
	require.NoError(t, run(t.Context(), database.DSN))
	require.Equal(t, oldOrders+newOrders, database.Count(t, invoices))
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM migration_example_messages"))
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM migration_example_dead_letters"))
}
