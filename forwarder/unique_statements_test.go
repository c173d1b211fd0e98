package forwarder_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// On PostgreSQL, a key that is new has no message to look for, and one whose message was deleted
// has none any more. The number of changed rows shows both, where the transaction's results have
// it.
func TestPublisher_of_a_free_unique_key_looks_for_no_message(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	database.Migrate(t)
	publisher := publisherFor(t, database, nil)
	inTx(t, database.DB, publisher, "warm up", newMessage("0", "")) // registers the outbox
	publish := func(messages ...*message.Message) (ran []string) {
		t.Helper()
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		through := publisher.Bind(postbox.ExecFunc(func(ctx context.Context, query string, args ...any) (sql.Result, error) {
			ran = append(ran, query)
			return tx.ExecContext(ctx, query, args...)
		}))
		require.NoError(t, through.Publish("topic", messages...))
		require.NoError(t, tx.Commit())
		return ran
	}
	left := func(want ...string) {
		t.Helper()
		require.Equal(t, want, stored(t, database, "topic"))
	}
	newKey := publish(skipping("1", "a"))
	require.Len(t, newKey, 2, "lock, store")
	waiting := publish(skipping("2", "a"))
	require.Len(t, waiting, 2, "lock, store if none waits")
	require.Less(t, len(newKey[1]), len(waiting[1]), "there is no search in it")
	left("1")
	require.Equal(t, newKey, publish(replacing("3", "b")), "there is nothing to remove")
	left("1", "3")
	replaced := publish(replacing("4", "b"))
	require.Len(t, replaced, 3, "lock, remove, store")
	require.Equal(t, newKey[1], replaced[2], "the message is not searched once more")
	left("1", "4")

	database.Exec(t, "DELETE FROM postbox_messages")
	require.Equal(t, waiting, publish(skipping("5", "a")), "the key is known, and its message is gone")
	gone := publish(replacing("6", "b"))
	require.Equal(t, replaced[:2], gone[:2])
	require.Greater(t, len(gone[2]), len(replaced[2]), "a message that another statement changed meanwhile is removed now")
	left("5", "6")

	database.Exec(t, "DELETE FROM postbox_messages")
	ran := publish(skipping("7", "c"), skipping("8", "c"), replacing("9", "d"), replacing("10", "d"), skipping("11", "a"), skipping("12", "a"))
	require.Len(t, ran, 3+1+2+1+3+2+2, "three keys are locked in their order; the first message of a new key is stored at once")
	left("7", "10", "11")
}
