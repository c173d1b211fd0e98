package cleanup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func watchConfig(after time.Duration) cleanup.Config {
	return cleanup.Config{Interval: 10 * time.Millisecond, Lease: time.Minute, Unattended: after}
}

// toldOf returns how often the log says that of the outbox or queue, or of the id of neither.
func toldOf(log *enginetest.Journal, kind string, name any) int {
	n := 0
	for _, line := range log.At(watermill.ErrorLogLevel) {
		if line.Fields[kind] == name {
			n++
		}
	}
	return n
}

// The publisher writes to one outbox, and the forwarder, which cleans up, has another. Nobody
// subscribes to a queue.
func TestCleaner_logs_once_that_no_process_handles_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		first, last := spool.New(b.Statements, "first"), spool.New(b.Statements, "last")
		_, err := first.Open(t.Context(), database.DB) // rounds go by the ids of spools
		require.NoError(t, err)
		outbox, queue := spool.New(b.Statements, "orders"), spool.New(b.Statements, spool.QueuePrefix+"fraud")
		store := func(s *spool.Spool, d spool.Draft) {
			require.NoError(t, s.Append(t.Context(), database.DB, spool.Run, []spool.Draft{d}))
		}
		due := enginetest.Draft("due", "") // it stands in the table of those that wait
		due.Due = time.Now().Add(-time.Minute)
		store(outbox, enginetest.Draft("1", ""))
		store(queue, due)

		// This one has a drainer, which does not take the message.
		b.Append(database.DB, enginetest.Draft("2", ""))
		b.drain("one", taker{excluded: []string{"orders"}}, 0)
		b.Eventually(func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_members") == 1 }, "it is there")

		_, log := b.clean(database.DB, "cleaner", watchConfig(time.Millisecond))
		b.Eventually(func() bool { return toldOf(log, "outbox", "orders") == 1 && toldOf(log, "queue", "fraud") == 1 }, "it is said")
		late := spool.New(b.Statements, "late")
		store(late, enginetest.Draft("3", ""))
		b.Eventually(func() bool { return toldOf(log, "outbox", "late") == 1 }, "there was another round")
		require.Len(t, log.At(watermill.ErrorLogLevel), 3, "each is said once, and nothing of what has a drainer")

		database.Exec(t, "DELETE FROM postbox_messages")
		store(first, enginetest.Draft("4", ""))
		b.Eventually(func() bool { return toldOf(log, "outbox", "first") == 1 }, "a round has begun")
		store(last, enginetest.Draft("5", ""))
		b.Eventually(func() bool { return toldOf(log, "outbox", "last") == 1 }, "it has passed the outbox without messages")
		store(outbox, enginetest.Draft("6", ""))
		b.Eventually(func() bool { return toldOf(log, "outbox", "orders") == 2 }, "it is said again when it comes again")
	})
}

// After an outage, messages have waited for long when a forwarder starts, and its cleaner looks
// before it is a member. That must not be logged as an error.
func TestCleaner_lets_the_forwarder_beside_it_join_before_it_looks(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, enginetest.Draft("1", ""))
		log := &enginetest.Journal{}
		cleaner := cleanup.New(database.DB, b.Statements, "cleaner", watchConfig(time.Microsecond), log)
		require.True(t, cleaner.Round(t.Context()))
		b.drain("one", taker{excluded: []string{"orders"}}, 0)
		b.Eventually(func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_members") == 1 }, "it has joined")
		require.True(t, cleaner.Round(t.Context()))
		require.Empty(t, log.At(watermill.ErrorLogLevel))
	})
}

func TestCleaner_does_not_log_messages_that_have_not_waited_for_long(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		young, old := spool.New(b.Statements, "young"), spool.New(b.Statements, "old")
		for _, s := range []*spool.Spool{young, old} { // a round comes to the young one first
			require.NoError(t, s.Append(t.Context(), database.DB, spool.Run, []spool.Draft{enginetest.Draft(s.Name(), ""), {Topic: "orders", MessageID: "later", Delay: time.Hour}}))
		}
		database.Exec(t, "UPDATE postbox_messages SET created_at = created_at - 7200000000 WHERE message_id = ?", []byte("old"))
		_, log := b.clean(database.DB, "cleaner", watchConfig(time.Hour))
		b.Eventually(func() bool { return toldOf(log, "outbox", "old") == 1 }, "it is said")
		require.Len(t, log.At(watermill.ErrorLogLevel), 1)
	})
}

// Somebody has deleted the row of a spool, or the database went back behind its registration.
// Nobody would read its messages.
func TestCleaner_G9_logs_messages_without_a_spool(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, enginetest.Draft("1", ""))
		id := database.Count(t, "SELECT spool FROM postbox_messages")
		database.Exec(t, "DELETE FROM postbox_spools")
		_, log := b.clean(database.DB, "cleaner", watchConfig(time.Millisecond))
		b.Eventually(func() bool { return toldOf(log, "spool", int64(id)) == 1 }, "it is said")
		require.Equal(t, 1, log.Said("UPDATE postbox_messages SET spool ="))
	})
}

// A role may be allowed to clean up, and not to read the messages. Another process may do that.
func TestCleaner_leaves_the_search_to_other_processes_if_its_role_may_not_read(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, enginetest.Draft("1", ""))
		database.Exec(t, "ALTER TABLE postbox_members RENAME COLUMN expires_at TO hidden") // which is refused in the same way
		_, log := b.clean(database.DB, "cleaner", watchConfig(time.Millisecond))
		b.Eventually(func() bool { return log.Said("leaves a maintenance task to other processes") == 1 }, "it gives up")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_chores WHERE name = 'unattended' AND expires_at = 0"), "another one can have it at once")
		require.Empty(t, log.At(watermill.ErrorLogLevel))
	})
}
