package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The list of names has what the counts have, and the inboxes with a history.
func TestTargets_names_outboxes_then_queues_then_inboxes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		none, err := b.admin.Targets(t.Context())
		require.NoError(t, err)
		require.Empty(t, none)
		for _, name := range []string{spool.QueuePrefix + "b", "z", spool.QueuePrefix + "a", "outbox"} {
			_, err := spool.New(b.statements, name).Open(t.Context(), database.DB)
			require.NoError(t, err)
		}
		b.received("1")
		targets, err := b.admin.Targets(t.Context())
		require.NoError(t, err)
		require.Equal(t, []admin.Target{admin.Outbox("outbox"), admin.Outbox("z"), admin.Queue("a"), admin.Queue("b"), inbox}, targets)
	})
}

// Those of a key are found by another index than the others.
func TestMessages_of_a_key_that_failed_are_listed_like_others(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", "a"), draft("2", "orders", "b"), draft("3", "orders", "a"), draft("4", "refunds", "a"), draft("5", "orders", "a"))
		b.exec(database.Bind("UPDATE postbox_messages SET state = 2, attempts = 3 WHERE message_id <> ?"), []byte("5"))
		b.exec(database.Bind("UPDATE postbox_messages SET available_at = available_at + ? WHERE message_id = ?"), int64(dialect.ParkDelay), []byte("3"))
		database.MoveWaiting(t)
		for _, test := range []struct {
			filter admin.MessageFilter
			want   []string
		}{
			{admin.MessageFilter{Key: "a", Status: admin.Retrying}, []string{"1", "4"}},
			{admin.MessageFilter{Key: "a", Status: admin.Parked}, []string{"3"}},
			{admin.MessageFilter{Key: "a", Status: admin.Retrying, Topic: "refunds"}, []string{"4"}},
			{admin.MessageFilter{Key: "a", Status: admin.Retrying, CreatedBefore: time.Unix(1, 0)}, nil},
			{admin.MessageFilter{Key: "c", Status: admin.Retrying}, nil},
		} {
			for _, limit := range []int{1, 100} {
				var found []string
				for test.filter.After, test.filter.Limit = "", limit; ; {
					page := b.messages(test.filter)
					for _, m := range page {
						found, test.filter.After = append(found, m.MessageID), m.Cursor
					}
					if len(page) < limit {
						break
					}
				}
				require.Equal(t, test.want, found, "%+v", test.filter)
			}
		}
	})
}

func TestSearchDeadLetters_and_SearchAudit_refuse_what_the_lists_refuse(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	_, err := b.admin.SearchDeadLetters(t.Context(), admin.Filter{Limit: admin.MaxLimit + 1, MinAttempts: -1})
	require.ErrorIs(t, err, admin.ErrInvalid)
	require.ErrorContains(t, err, "limit: 1001 is above 1000")
	_, err = b.admin.SearchDeadLetters(t.Context(), admin.Filter{Target: admin.Outbox("missing")})
	require.ErrorIs(t, err, admin.ErrNotFound)
	_, err = b.admin.SearchAudit(t.Context(), admin.AuditFilter{Before: -1})
	require.ErrorIs(t, err, admin.ErrInvalid)
	_, err = b.admin.SearchAudit(t.Context(), admin.AuditFilter{Target: admin.Outbox("missing")})
	require.ErrorIs(t, err, admin.ErrNotFound)
}
