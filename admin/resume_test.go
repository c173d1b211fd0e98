package admin_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// What a stopped action has left is what its row in the audit log chooses, with each of its
// conditions.
func TestAudit_the_row_of_a_stopped_action_chooses_the_rest(t *testing.T) {
	t.Parallel()
	eachBulkAction(t, func(b *bench, name string, act bulkAction) {
		b.letters(250)
		filter := admin.Filter{Target: b.target, Topic: "orders", ErrorText: "card 4", MinAttempts: 2, Until: time.UnixMicro(9)}
		matching := len(b.list(with(filter, 1000)))
		require.Greater(b, matching, 100)
		ctx, stop := context.WithCancel(b.Context())
		did, err := act(ctx, b.admin, filter, func(admin.Progress) { stop() })
		require.ErrorIs(b, err, context.Canceled)
		require.Equal(b, 100, did)

		entry := b.latest()
		require.Contains(b, entry.Note, "start it again for the rest")
		require.True(b, entry.Rest.All)
		require.Len(b, b.list(with(entry.Rest, 1000)), matching-did)
		rest := entry.Rest
		rest.All = false
		did, err = act(b.Context(), b.admin, rest, nil)
		require.NoError(b, err)
		require.Equal(b, matching-100, did, name)
		require.Zero(b, b.latest().Rest, "it has come to its end")
	})
}

// with asks for all that a filter chooses on one page.
func with(filter admin.Filter, limit int) admin.Filter {
	filter.Limit, filter.All = limit, false
	return filter
}

func (b *bench) latest() admin.AuditEntry {
	b.Helper()
	entries, _, err := b.admin.Audit(b.Context(), admin.Filter{Limit: 1})
	require.NoError(b, err)
	return entries[0]
}

// Of messages the target stands beside the filter, and a limit counts what was done.
func TestAudit_the_row_of_stopped_messages_has_their_target_and_what_is_left_of_a_limit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(numbered(250)...)
		ctx, stop := context.WithCancel(b.Context())
		did, err := b.admin.Bury(ctx, admin.Filter{Target: b.target, Topic: "orders", Limit: 180}, "not wanted", func(admin.Progress) { stop() })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 100, did)
		b.append(draft("later", "orders", "k"))
		rest := b.latest().Rest
		require.Equal(t, []any{b.target, "orders", 80}, []any{rest.Target, rest.Topic, rest.Limit})
		did, err = b.admin.Bury(b.Context(), rest, "not wanted")
		require.NoError(t, err)
		require.Equal(t, 80, did)
		require.Equal(t, 71, b.pending())
	})
}

// A letter says after how many messages of its key it comes, whichever of them wait and why.
func TestStuckKeys_G3_of_a_letter_have_all_its_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("first", "orders", "k"), draft("other", "orders", "l"))
		b.bury()
		first, other := b.only(admin.Filter{MessageID: "first"}).ID, b.only(admin.Filter{MessageID: "other"}).ID
		require.Empty(t, b.keyOf(first))
		b.append(draft("second", "orders", "k"), draft("other", "orders", "l"), draft("third", "orders", "k"), draft("keyless", "orders", ""))
		require.Equal(t, []string{"second READY 1"}, b.keyOf(first), "it is not stuck")
		database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 1, available_at = available_at + ? WHERE message_id = ?", time.Hour.Microseconds(), []byte("second"))
		database.MoveWaiting(t)
		require.Equal(t, []string{"second RETRYING 1"}, b.keyOf(first))
		b.buryInbox("of an inbox", 0)
		inbox := b.only(admin.Filter{Consumer: "billing"}).ID
		require.Empty(t, b.keyOf(inbox))
		b.append(draft("fourth", "orders", "key"), draft("fifth", "orders", "key"))
		require.Equal(t, []string{"fourth READY 1"}, b.keyOf(inbox), "it goes through the outbox")
		_, err := b.admin.Resolve(b.Context(), admin.Filter{ID: inbox}, "done")
		require.NoError(t, err)
		require.Empty(t, b.keyOf(inbox), "it is not requeued any more")
		_, err = b.admin.StuckKeys(b.Context(), admin.Filter{ID: inbox + 1})
		require.ErrorIs(t, err, admin.ErrNotFound)
		_, err = b.admin.StuckKeys(b.Context(), admin.Filter{ID: inbox, Target: b.target})
		require.ErrorIs(t, err, admin.ErrInvalid)

		did, err := b.admin.Requeue(b.Context(), admin.Filter{Key: "k"}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, 1, did)
		require.Equal(t, []string{"other READY 0"}, b.keyOf(other))
		var order []string
		_, stop := b.drain(func(m *spool.Message) error {
			if m.Key == "k" { // one after the other
				order = append(order, m.MessageID)
			}
			return nil
		})
		_, err = b.admin.Reschedule(b.Context(), admin.Filter{Target: b.target, Key: "k"}, time.Time{})
		require.NoError(t, err)
		b.eventually(func() bool { return b.pending() == 0 }, "all are handled")
		stop()
		require.Equal(t, []string{"second", "third", "first"}, order)
	})
}

// keyOf are the first message of the key of a letter, its status, and how many are behind it.
func (b *bench) keyOf(letter int64) (found []string) {
	b.Helper()
	keys, err := b.admin.StuckKeys(b.Context(), admin.Filter{ID: letter})
	require.NoError(b, err)
	for _, k := range keys {
		require.False(b, k.MoreBehind)
		found = append(found, fmt.Sprintf("%s %s %d", k.Head.MessageID, k.Head.Status, k.Behind))
	}
	return found
}

// A zero time of any place is no bound, so a filter with nothing else chooses nothing.
func TestFilter_a_zero_time_is_no_condition(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.letters(1)
	for _, filter := range []admin.Filter{{From: time.Time{}.Local()}, {Until: time.Time{}.Local()}} {
		_, err := b.admin.Delete(t.Context(), filter)
		require.ErrorIs(t, err, admin.ErrInvalid)
	}
	require.Len(t, b.list(admin.Filter{}), 1)
}

// A change of times leaves what it has changed among what matches: it would be changed again.
func TestAudit_a_change_of_times_has_no_rest(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(numbered(250)...)
	b.database.Exec(t, "UPDATE postbox_messages SET state = 1, available_at = available_at + ?", 2*time.Hour.Microseconds())
	ctx, stop := context.WithCancel(t.Context())
	_, err := b.admin.Reschedule(ctx, admin.Filter{Target: b.target, Topic: "orders"}, time.Now().Add(time.Hour), func(admin.Progress) { stop() })
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, b.latest().Note, "start it again for the rest")
	require.Zero(t, b.latest().Rest)
}
