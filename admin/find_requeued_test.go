package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// What failed of a message is found after it was requeued, though it has another number: also if it
// dies once more, and only in its own outbox.
func TestFind_tells_what_failed_before_a_message_was_requeued(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("order-1", "orders", "customer-1"), draft("order-2", "orders", "customer-2"))
		b.bury()
		_, err := b.admin.Requeue(t.Context(), admin.Filter{ID: 1}, admin.Again{})
		require.NoError(t, err)
		n, err := b.admin.Requeue(t.Context(), admin.Filter{Target: b.target, All: true}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, 1, n)

		failed := []string{"attempt 1 failed, in forwarder " + errBroker.Error(), "attempt 2 failed, in forwarder " + errBroker.Error()}
		waits, _, err := b.admin.Messages(t.Context(), admin.Filter{Target: b.target})
		require.NoError(t, err)
		require.Len(t, waits, 2)
		for i, id := range []string{"order-1", "order-2"} {
			lines, _ := b.found(id)
			require.Subset(t, lines, failed)
			whole, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, ID: waits[i].ID})
			require.NoError(t, err)
			require.Len(t, whole.Failures, 3)
			require.Contains(t, whole.Failures[2].Error, "requeued from dead letter")
		}

		b.bury()
		letters, _, err := b.admin.DeadLetters(t.Context(), admin.Filter{Target: b.target})
		require.NoError(t, err)
		require.Len(t, letters, 2)
		letter, err := b.admin.DeadLetter(t.Context(), letters[0].ID)
		require.NoError(t, err)
		require.Len(t, letter.Failures, 5)
		_, err = b.admin.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{})
		require.NoError(t, err)
		stop := b.drainWith(database.DB, newHandler(func(*spool.Message) error { return nil }), func(c *drain.Config) { c.History = time.Hour })
		b.eventually(func() bool { return b.pending() == 0 }, "it is done")
		stop()
		lines, _ := b.found(letter.MessageID)
		require.Len(t, withoutSpans(lines), 8, "%q: written, three times of dying and trying, and done", lines)
		require.Subset(t, lines, failed)

		other := admin.Outbox("other")
		require.NoError(t, spool.New(b.statements, other.Name).Append(t.Context(), database.DB, spool.Run, []spool.Draft{draft(letter.MessageID, "orders", "a")}))
		waits, _, err = b.admin.Messages(t.Context(), admin.Filter{Target: other})
		require.NoError(t, err)
		require.Len(t, waits, 1)
		whole, err := b.admin.Message(t.Context(), admin.Filter{Target: other, ID: waits[0].ID})
		require.NoError(t, err)
		require.Empty(t, whole.Failures)
	})
}
