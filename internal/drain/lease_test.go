package drain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		b.Eventually(func() bool {
			return b.held("three") >= lanes/3 && b.held("one") <= lanes/3+1 && b.held("two") <= lanes/3+1
		}, "three share")

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

// A process is cut off in the middle of a settlement, which has a lane locked. Others take the
// other lanes, and hand lanes back, without waiting for it: also on a MariaDB that has
// innodb_snapshot_isolation, where a statement waits for each locked row that it passes over.
func TestLease_F25_a_lane_that_a_frozen_process_has_locked_holds_up_no_others(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		db := database.DB
		if database.IsMariaDB(t) {
			db = database.OpenWith(t, "innodb_snapshot_isolation=1")
		}
		b := newBench(t, database)
		handler := &recorder{}
		one := b.start(db, handler, config("one"))
		b.Eventually(func() bool { return b.held("one") == lanes }, "the lanes exist")
		one.stop(t)
		database.Exec(t, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'frozen', '{}', 1 FROM postbox_spools")
		database.Exec(t, "UPDATE postbox_lanes SET holder = 'frozen'")
		frozen, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = frozen.Rollback() }()
		share := "FOR SHARE"
		if database.IsMariaDB(t) {
			share = "LOCK IN SHARE MODE"
		}
		var lane int
		own := fmt.Sprintf("SELECT lane FROM postbox_lanes WHERE spool = %d AND lane = 5 ", database.Count(t, "SELECT id FROM postbox_spools"))
		require.NoError(t, frozen.QueryRowContext(t.Context(), own+share).Scan(&lane))

		two := b.start(db, handler, config("two"))
		b.Eventually(func() bool { return b.held("two") == lanes-1 }, "it takes all others")
		three := b.start(db, handler, config("three"))
		b.Eventually(func() bool { return b.held("three") >= lanes/2-1 && b.held("two") <= lanes/2 }, "some change hands")
		two.stop(t)
		b.Eventually(func() bool { return b.held("three") == lanes-1 }, "and back")
		database.Exec(t, "DELETE FROM postbox_members WHERE holder = 'three'")
		b.Eventually(func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_members WHERE holder = 'three'") == 1 && b.held("three") == lanes-1
		}, "a member that was deleted hands back its lanes, and takes them anew")
		require.Equal(t, 1, b.held("frozen"))
		three.stop(t)
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
		database.Exec(t, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, 'gone', '{}', ? FROM postbox_spools", time.Now().Add(300*time.Millisecond).UnixMicro())
		database.Exec(t, "UPDATE postbox_lanes SET holder = 'gone', token = token + 1")

		handler := &recorder{}
		b.start(database.DB, handler, config("heir"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "the heir takes over")
		require.Equal(t, lanes, b.held("heir"))
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
			database.Exec(t, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, ?, '{}', 4000000000000000 FROM postbox_spools", "new "+name)
			database.Exec(t, "UPDATE postbox_lanes SET holder = ?, token = token + 1", "new "+name)
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

func TestSpool_without_tables_says_what_to_do(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		b := newUnmigratedBench(t, open(t))
		err := b.Spool.Append(t.Context(), b.Database.DB, spool.Run, []spool.Draft{draft("1", "")})
		require.ErrorContains(t, err, "postbox.Migrate")
	}
}
