package command_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestDoctor_finds_that_the_slot_of_the_log_is_gone(t *testing.T) {
	t.Parallel()
	b := &bench{T: t, database: testdb.PostgresLog(t).Migrate(t)}
	b.database.Exec(t, `INSERT INTO postbox_log_position SELECT 1, 'postbox_' || d.oid || '_' || 'postbox_messages'::regclass::oid || '_outbox', 5, 0, 1, 0
		FROM pg_database d WHERE d.datname = current_database()`)
	found := b.findings()["log"]
	require.Len(t, found, 2)
	require.Contains(t, found[0], "problem: there is no publication postbox_")
	for _, says := range []string{"problem: the slot postbox_", "is gone: messages that were in the log alone may be lost", "pgtail.AcceptLoss"} {
		require.Contains(t, found[1], says)
	}
}
