package testdb

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

func TestAdmin_sessions_are_shared_and_end_with_the_last_test(t *testing.T) {
	address := testservice.Address(t, testservice.PostgresVariable) + "&application_name=" + uniqueName()
	schemas := []string{"&search_path=one", "&search_path=two"}
	var shared *sql.DB
	t.Run("tests", func(t *testing.T) {
		for _, schema := range schemas {
			t.Run(schema, func(t *testing.T) {
				server, enter := postgresServer(t, address+schema)
				require.Contains(t, enter, schema[len(schema)-3:])
				require.NoError(t, server.db.PingContext(t.Context()))
			})
		}
		first, _ := postgresServer(t, address+schemas[0])
		shared = first.db
		t.Run("beside", func(t *testing.T) {
			second, _ := postgresServer(t, address+schemas[1])
			require.Same(t, shared, second.db)
		})
		require.NoError(t, shared.PingContext(t.Context()), "a test that still runs needs it")
	})
	require.ErrorContains(t, shared.PingContext(t.Context()), "closed")
	later, _ := postgresServer(t, address+schemas[0])
	require.NoError(t, later.db.PingContext(t.Context()))
}
