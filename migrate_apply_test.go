package postbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A migration that waits for a table keeps all others from it, who come after it. So it waits for half a second at a time.
func TestMigrate_lets_producers_go_on_while_it_waits_for_one(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	config := postbox.MigrateConfig{Dialect: database.Dialect, Version: beforeWaiting}
	require.NoError(t, postbox.Migrate(t.Context(), database.DB, config))
	const insert = `INSERT INTO postbox_messages (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
		VALUES (1, 0, 0, 0, 0, 'orders', '', '', '{}')`
	producer, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = producer.Rollback() }()
	_, err = producer.ExecContext(t.Context(), insert)
	require.NoError(t, err)

	migrated := make(chan error, 1)
	go func() {
		migrated <- postbox.Migrate(t.Context(), database.Open(t), postbox.MigrateConfig{Dialect: database.Dialect})
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for waits := 0; waits == 0; {
		require.NoError(t, database.DB.QueryRowContext(ctx, `SELECT COUNT(*) FROM pg_locks
			WHERE relation = 'postbox_messages'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted`).Scan(&waits))
	}
	conn, err := database.DB.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.ExecContext(ctx, "SET statement_timeout = '10s'") // the migration is tried again for ten minutes
	require.NoError(t, err)
	_, err = conn.ExecContext(ctx, insert)
	require.NoError(t, err, "another producer goes on")

	require.NoError(t, producer.Commit())
	require.NoError(t, <-migrated)
	require.Equal(t, newest(database), database.Count(t, "SELECT MAX(version_id) FROM postbox_version"))
	require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
}

// Many of them would be moved in one statement, for which those who write messages with a delay would wait.
func TestMigrate_moves_many_that_wait_some_at_a_time(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	config := postbox.MigrateConfig{Dialect: database.Dialect, Version: beforeWaiting}
	require.NoError(t, postbox.Migrate(t.Context(), database.DB, config))
	const many = 12_000
	database.Exec(t, fmt.Sprintf(`INSERT INTO postbox_messages (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
		SELECT 1, 0, n %% 2, 0, 0, 'orders', '', '', '{}' FROM generate_series(1, %d) n`, 2*many))
	database.Migrate(t)
	require.Equal(t, many, database.Count(t, "SELECT COUNT(*) FROM ONLY postbox_messages WHERE state = 0"))
	require.Equal(t, many, database.Count(t, "SELECT COUNT(*) FROM postbox_waiting"))
	transactions := database.Count(t, "SELECT COUNT(DISTINCT xmin::text) FROM postbox_waiting")
	require.Equal(t, (many+4999)/5000, transactions)
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM pg_indexes WHERE schemaname = current_schema() AND indexname IN ('postbox_messages_due', 'postbox_messages_retrying')"))
}
