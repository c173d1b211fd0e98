package enginetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The actions of operators, for tests of the engine, which knows nothing of package admin.

// StoreSettings stores settings of a spool, and tells the processes.
func StoreSettings(t *testing.T, database *testdb.Database, name string, settings spool.Settings) {
	t.Helper()
	text, err := settings.Encode()
	require.NoError(t, err)
	database.Exec(t, "UPDATE postbox_spools SET settings = ?, version = version + 1 WHERE name = ?", text, name)
}

// Requeue makes the last message of its spool of a dead letter.
func Requeue(ctx context.Context, database *testdb.Database, s *spool.Spool, letter int64) error {
	tx, err := database.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var topic string
	var id, key, payload, metadata []byte
	query := "SELECT topic, message_id, ordering_key, payload, metadata FROM postbox_dead_letters WHERE id = ? AND resolved_at IS NULL"
	if err := tx.QueryRowContext(ctx, database.Bind(query), letter).Scan(&topic, &id, &key, &payload, &metadata); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, database.Bind("DELETE FROM postbox_dead_letters WHERE id = ?"), letter); err != nil {
		return err
	}
	draft := spool.Draft{Topic: topic, MessageID: string(id), Key: string(key), Payload: payload}
	if draft.Metadata, err = spool.DecodeMetadata(metadata); err != nil {
		return err
	}
	if err := s.Append(ctx, tx, spool.Run, []spool.Draft{draft}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return s.Announce(ctx, database.DB)
}
