package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A dead letter does not wait. When an operator requeues it, its message is stored in any case, and no longer has its unique key.
func TestAdmin_requeues_a_message_whose_unique_key_waits_again(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	publish := func(id string) (stored bool) {
		d := draft(id, "orders", "")
		d.UniqueKey = "key"
		tx, err := b.database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		skipped, err := b.outbox.AppendUnique(t.Context(), tx, spool.Unprepared, []spool.Draft{d})
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		return len(skipped) == 0
	}
	pending := func() (ids []string) {
		messages, err := b.admin.Messages(t.Context(), admin.MessageFilter{Target: b.target})
		require.NoError(t, err)
		for _, m := range messages {
			ids = append(ids, m.MessageID)
		}
		return ids
	}
	require.True(t, publish("1"))
	require.NoError(t, b.admin.Bury(t.Context(), b.target, b.message("1").ID, "a test"))
	require.True(t, publish("2"), "a dead letter does not wait")
	require.NoError(t, b.admin.Requeue(t.Context(), b.only(admin.Filter{}).ID))
	require.ElementsMatch(t, []string{"1", "2"}, pending())
	require.False(t, publish("3"), "the second message has the key")
	b.database.Exec(t, "DELETE FROM postbox_messages WHERE message_id = ?", []byte("2"))
	require.True(t, publish("4"), "the requeued message has no key")
	require.ElementsMatch(t, []string{"1", "4"}, pending())
}
