package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A dead letter does not wait. When an operator requeues it, its message is stored in any case, and
// no longer has its unique key.
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
		messages, _, err := b.admin.Messages(t.Context(), admin.Filter{Target: b.target})
		require.NoError(t, err)
		for _, m := range messages {
			ids = append(ids, m.MessageID)
		}
		return ids
	}
	require.True(t, publish("1"))
	require.NoError(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: b.message("1").ID}, "a test")))
	require.True(t, publish("2"), "a dead letter does not wait")
	require.NoError(t, errorOf(b.admin.Requeue(t.Context(), admin.Filter{ID: b.only(admin.Filter{}).ID}, admin.Again{})))
	require.ElementsMatch(t, []string{"1", "2"}, pending())
	require.False(t, publish("3"), "the second message has the key")
	b.database.Exec(t, "DELETE FROM postbox_messages WHERE message_id = ?", []byte("2"))
	require.True(t, publish("4"), "the requeued message has no key")
	require.ElementsMatch(t, []string{"1", "4"}, pending())
}

// A unique key is shown with its message while that waits, and leads to it.
func TestUniqueMessage_finds_the_message_that_waits_under_a_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		store := func(id, topic, key, uniqueKey string) {
			d := draft(id, topic, key)
			d.UniqueKey = uniqueKey
			tx, err := database.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = b.outbox.AppendUnique(t.Context(), tx, spool.Unprepared, []spool.Draft{d})
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
		}
		store("same", "orders", "customer 7", "customer 7")
		store("other topic", "invoices", "customer 7", "customer 7")
		store("two keys", "orders", "customer 8", "statement \xff of 8")
		b.append(draft("without", "orders", "customer 9"))

		for _, test := range []struct{ topic, key, want string }{
			{"orders", "customer 7", "same"}, {"invoices", "customer 7", "other topic"}, {"orders", "statement \xff of 8", "two keys"},
		} {
			m, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, Topic: test.topic, UniqueKey: test.key})
			require.NoError(t, err)
			require.Equal(t, []string{test.want, test.key}, []string{m.MessageID, m.UniqueKey})
			require.Equal(t, "payload of "+test.want, string(m.Payload))
		}
		for id, want := range map[string]string{"same": "customer 7", "other topic": "customer 7", "two keys": "", "without": ""} {
			m, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, ID: b.message(id).ID})
			require.NoError(t, err)
			require.Equal(t, want, m.UniqueKey, id)
		}

		for _, key := range []string{"customer 8", "customer 9", "nothing"} {
			_, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, Topic: "orders", UniqueKey: key})
			require.ErrorIs(t, err, admin.ErrNotFound, key)
		}
		same := b.message("same").ID
		database.Exec(t, "UPDATE postbox_unique_keys SET created_at = created_at - 1 WHERE id = ?", same)
		_, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, Topic: "orders", UniqueKey: "customer 7"})
		require.ErrorIs(t, err, admin.ErrNotFound, "a restored database has given the id again")
		m, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, ID: same})
		require.NoError(t, err)
		require.Empty(t, m.UniqueKey)
		require.NoError(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: b.message("other topic").ID}, "a test")))
		_, err = b.admin.Message(t.Context(), admin.Filter{Target: b.target, Topic: "invoices", UniqueKey: "customer 7"})
		require.ErrorIs(t, err, admin.ErrNotFound, "a dead letter does not wait")

		for _, wrong := range []struct {
			target     admin.Target
			topic, key string
		}{{admin.Queue("fraud"), "orders", "a"}, {admin.Inbox("billing"), "orders", "a"}, {b.target, "", "a"}, {b.target, "orders", ""}} {
			_, err := b.admin.Message(t.Context(), admin.Filter{Target: wrong.target, Topic: wrong.topic, UniqueKey: wrong.key})
			require.ErrorIs(t, err, admin.ErrInvalid)
		}
	})
}
