package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestNeeds_has_the_most_urgent_first_and_folds_what_follows_from_an_outage(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	needs := admin.Needs([]admin.QueueInfo{
		{Target: admin.Outbox("dead"), Processes: 1, Dead: 300},
		{Target: admin.Outbox("stuck"), Processes: 1, Pending: 9, StuckKeys: 2, Due: 9, DueAge: time.Hour},
		{Target: admin.Outbox("paused"), Processes: 1, Pending: 9, Due: 9, DueAge: time.Hour, Pause: admin.Paused{Since: since}},
		{Target: admin.Outbox("late"), Processes: 1, Pending: 9, Due: 9, DueAge: time.Hour},
		{Target: admin.Outbox("away"), Processes: 1, Pending: 157, StuckKeys: 40, Outages: []admin.Outage{{Topic: "a", Since: since.Add(time.Minute)}, {Topic: "b", Since: since}}},
		{Target: admin.Outbox("over"), Processes: 1, Outages: []admin.Outage{{Topic: "a", Since: since}}},
		{Target: admin.Outbox("scheduled"), Pending: 9},
		{Target: admin.Queue("nobody"), Pending: 1, Due: 1, DueAge: time.Second},
		{Target: admin.Outbox("well"), Processes: 1, Pending: 1000, Due: 1000, DueAge: time.Second},
	})
	var urgent, others []string
	for _, n := range needs {
		if n.Urgent {
			require.Empty(t, others, "the urgent ones come first")
			urgent = append(urgent, n.Target.Name)
		} else {
			others = append(others, n.Target.Name)
		}
	}
	require.Equal(t, []string{"nobody", "away"}, urgent)
	require.Equal(t, []string{"stuck", "late", "paused", "dead"}, others)
	require.Contains(t, needs[1].Text, "cannot reach the broker for 2 topics since 2026-03-04 05:06:07 UTC, for ")
	require.Contains(t, needs[1].Text, "157 messages wait: none is lost.")
	require.Equal(t, []string{"keys", "stuck", "--outbox", "stuck"}, needs[2].Command)
	require.Empty(t, admin.Needs(nil))
}

// Letters that rise are new trouble, and those of last week are not.
func TestNeeds_say_how_many_dead_letters_are_new(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		says := func(texts ...string) {
			t.Helper()
			queues, err := b.admin.Queues(t.Context())
			require.NoError(t, err)
			var said []string
			for _, n := range admin.Needs(queues) {
				require.Equal(t, "letters", n.Trouble)
				said = append(said, n.Target.Kind+" "+n.Text)
			}
			require.Equal(t, texts, said)
		}
		b.letters(3)
		b.buryInbox("inbox", 0)
		died := func(at time.Time) {
			b.exec(database.Bind("UPDATE postbox_dead_letters SET died_at = ? WHERE message_id <> ?"), at.UnixMicro(), []byte("00001"))
		}
		died(time.Now().Add(-time.Hour))
		says("outbox has 3 dead letters.", "inbox has 1 dead letter.")
		died(time.Now())
		says("outbox has 3 dead letters, 2 in the last ten minutes.", "inbox has 1 dead letter, 1 in the last ten minutes.")
	})
}

func TestSeen_says_whether_a_topic_may_be_a_typing_error(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", ""))
		b.exec(database.Bind(b.insertHistory()), 5, b.outboxID(), 1)
		for topic, want := range map[string]bool{"orders": true, "order": false} {
			seen, err := b.admin.Seen(t.Context(), b.target, topic)
			require.NoError(t, err)
			require.Equal(t, want, seen, topic)
		}
		b.bury()
		seen, err := b.admin.Seen(t.Context(), b.target, "orders")
		require.NoError(t, err)
		require.True(t, seen, "it has dead letters")
		_, err = b.admin.Seen(t.Context(), admin.Outbox("none"), "orders")
		require.ErrorIs(t, err, admin.ErrNotFound)
	})
}
