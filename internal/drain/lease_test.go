package drain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// held counts the lanes of a holder.
func (b *bench) held(holder string) int {
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_lanes WHERE holder = ?", holder)
}

func TestDrainer_lanes_are_shared_out_fairly(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &recorder{}
		one := b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.held("one") == lanes }, "the first takes all")
		two := b.start(database.Open(t), handler, config("two"))
		b.Eventually(func() bool { return b.held("one") == lanes/2 && b.held("two") == lanes/2 }, "two share")
		three := b.start(database.Open(t), handler, config("three"))
		b.Eventually(func() bool { return b.held("three") >= 2 && b.held("one") <= 3 && b.held("two") <= 3 }, "three share")

		b.Append(database.DB, drafts(300, func(i int) string { return fmt.Sprint(i % 20) })...)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
		ids := handler.ids()
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(ids))), len(ids), "no message was handled twice")

		two.stop(t)
		three.stop(t)
		b.Eventually(func() bool { return b.held("one") == lanes }, "what was handed back is taken")
		one.stop(t)
	})
}

func TestDrainer_G6_lanes_of_a_crashed_process_change_hands_after_the_lease(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(20, func(i int) string { return fmt.Sprint(i) })...)
		// A process that died holds every lane for another 300 ms.
		probe := &recorder{}
		r := b.start(database.DB, probe, config("probe"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "the spool exists")
		r.stop(t)
		b.Append(database.DB, drafts(20, func(i int) string { return fmt.Sprint(i) })...)
		_, err := database.DB.ExecContext(t.Context(), database.Bind(
			"UPDATE postbox_lanes SET holder = 'gone', token = token + 1, expires_at = ?"), time.Now().Add(300*time.Millisecond).UnixMicro())
		require.NoError(t, err)

		handler := &recorder{}
		b.start(database.DB, handler, config("heir"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "the heir takes over")
		require.Equal(t, lanes, b.held("heir"))
	})
}

// A publisher from before PostgreSQL had a table for what waits puts a message with a delay among the ready ones, and whoever
// changes a state by hand may do so.
func TestDrainer_G1_finds_waiting_messages_in_the_table_of_ready_ones(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(3, func(i int) string { return fmt.Sprint(i) })...)
		database.Exec(t, "UPDATE postbox_messages SET state = 1 WHERE message_id = ?", []byte("00001"))
		database.Exec(t, "UPDATE postbox_messages SET state = 2 WHERE message_id = ?", []byte("00002"))
		handler := &recorder{}
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "they are found at the start")
		database.Exec(t, `INSERT INTO postbox_messages (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
			SELECT id, 0, 1, 0, 0, 'orders', ?, ?, ? FROM postbox_spools`, []byte("00003"), []byte{}, []byte("{}"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "and later")
		require.ElementsMatch(t, []string{"00000", "00001", "00002", "00003"}, handler.ids())
	})
}

// Also covers F15.
func TestDrainer_G6_a_process_that_lost_the_lease_cannot_settle(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for name, verdict := range map[string]error{"done": nil, "retry": errTest} {
			b := newBench(t, database)
			b.Append(database.DB, draft("1 "+name, "key"))
			entered, proceed := make(chan struct{}), make(chan struct{})
			slow := &recorder{do: func(*spool.Message) error {
				close(entered)
				<-proceed
				return verdict
			}}
			c := config("slow " + name)
			c.Renew = time.Hour // as if it were paused: it does not notice
			r := b.start(database.DB, slow, c)
			<-entered
			database.Exec(t, "UPDATE postbox_lanes SET holder = 'new', token = token + 1")
			close(proceed)
			b.Eventually(func() bool { return slow.tried("1 "+name) == 1 }, "the handler ends")
			r.stop(t)
			require.Equal(t, 1, b.Pending(), "the message belongs to the new holder")
			require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts = 0 AND state = 0"))
			database.Exec(t, "DELETE FROM postbox_messages")
			database.Exec(t, "UPDATE postbox_lanes SET holder = NULL")
		}
	})
}

// The configured number of lanes is that of a new spool: for one that exists, the stored number counts.
func TestSpool_uses_the_stored_number_of_lanes(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	b.Append(database.DB, draft("1", "key"))
	other := spool.New(b.Statements, b.Spool.Name(), lanes+1)
	require.NoError(t, other.Append(t.Context(), database.DB, spool.Run, []spool.Draft{draft("2", "key")}))
	handler, logger := &recorder{}, enginetest.NewJournal()
	drainer := drain.New(database.DB, spool.New(b.Statements, b.Spool.Name(), lanes+1), handler, config("one"), logger)
	b.run(drainer)
	b.Eventually(func() bool { return b.Pending() == 0 }, "both are handled")
	require.Equal(t, []string{"1", "2"}, handler.ids())
	require.Equal(t, lanes, b.held("one"))
	require.Equal(t, 1, logger.Said("Postbox uses the stored number of lanes instead of the configured one"))
}

func TestSpool_without_tables_says_what_to_do(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		b := newUnmigratedBench(t, open(t))
		err := b.Spool.Append(t.Context(), b.Database.DB, spool.Run, []spool.Draft{draft("1", "")})
		require.ErrorContains(t, err, "postbox.Migrate")
	}
}
