package drain_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// startLogged is start with a logger of the test's.
func (b *bench) startLogged(db *sql.DB, handler drain.Handler, config drain.Config) *enginetest.Journal {
	b.T.Helper()
	logger := enginetest.NewJournal()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	drainer := drain.New(db, spool.New(b.Statements, b.Spool.Name()), handler, config, logger)
	go func() { done <- drainer.Run(ctx) }()
	b.T.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.T.Error(err)
		}
	})
	return logger
}

// goBack makes the database what it was when it had given out so many ids: empty by then, with new
// messages of the same ids, and all in one commit, as a drainer meets a promoted standby or a
// restored backup.
func (b *bench) goBack(given int, drafts ...spool.Draft) {
	b.T.Helper()
	tx, err := b.Database.DB.BeginTx(b.T.Context(), nil)
	require.NoError(b.T, err)
	defer func() { _ = tx.Rollback() }()
	exec := func(query string, args ...any) {
		b.T.Helper()
		_, err := tx.ExecContext(b.T.Context(), b.Database.Bind(query), args...)
		require.NoError(b.T, err, query)
	}
	exec("DELETE FROM postbox_messages")
	switch b.Database.Dialect {
	case postbox.PostgreSQL:
		exec("SELECT setval('postbox_messages_id_seq', ?, true)", given)
	case postbox.SQLite:
		exec("UPDATE sqlite_sequence SET seq = ? WHERE name = 'postbox_messages'", given)
	case postbox.MySQL: // its counter does not go back while it runs: the rows get the ids of before below
	}
	b.Append(tx, drafts...)
	if b.Database.Dialect == postbox.MySQL {
		for i, d := range drafts {
			exec("UPDATE postbox_messages SET id = ? WHERE message_id = ?", given+1+i, []byte(d.MessageID))
		}
	}
	require.NoError(b.T, tx.Commit())
}

// What the new database has is handled, each message once and in the order of its key, although the
// drainer has messages of the same ids in memory, and is handling some of the same keys.
func TestDrainer_G3_a_database_that_goes_back_loses_and_reorders_no_present_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		// Enough has gone through before for cursors to be far.
		handler := &recorder{}
		var once sync.Once
		entered, proceed := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(proceed) })
		handler.do = func(m *spool.Message) error {
			if strings.HasPrefix(m.MessageID, "old") {
				once.Do(func() { close(entered) })
				<-proceed
			}
			return nil
		}
		c := config("one")
		c.Workers, c.BatchSize = 2, 1
		logger := b.startLogged(database.DB, handler, c)
		t.Cleanup(release)
		key := func(i int) string { return fmt.Sprint("key ", i%4) }
		b.Append(database.DB, drafts(30, key)...)
		b.Eventually(func() bool { return b.Pending() == 0 }, "the first ones are through")
		old := drafts(40, key)
		for i := range old {
			old[i].MessageID = "old " + old[i].MessageID
		}
		b.Append(database.DB, old...)
		<-entered

		now := drafts(60, key)
		for i := range now {
			now[i].MessageID = "new " + now[i].MessageID
		}
		b.goBack(20, now...)
		b.Eventually(func() bool { return logger.Said("starts over") > 0 }, "it notices")
		release()
		b.Eventually(func() bool { return b.Pending() == 0 }, "all is handled")
		require.Zero(t, b.Dead())
		for i := range 4 {
			var want, got []string
			for n, d := range now {
				if n%4 == i {
					want = append(want, d.MessageID)
				}
			}
			for _, id := range handler.ids() {
				if slices.Contains(want, id) {
					got = append(got, id)
				}
			}
			require.Equal(t, want, got, "of key %d", i)
		}
		// PostgreSQL's sequence goes back before the commit that replaces the rows, so a read can
		// come in between.
		require.LessOrEqual(t, logger.Said("starts over"), 2, "it says so once")
	})
}

// The same where nothing is in memory by which the drainer could tell: its reads begin beyond what
// the database gives out again.
func TestDrainer_G3_an_idle_drainer_notices_that_a_database_has_gone_back(t *testing.T) {
	t.Parallel()
	restore := map[string][]string{
		"emptied":    {"DELETE FROM postbox_messages", "ALTER TABLE postbox_messages AUTO_INCREMENT = 11"},
		"made anew":  {"CREATE TABLE m LIKE postbox_messages", "DROP TABLE postbox_messages", "RENAME TABLE m TO postbox_messages"},
		"taken back": {"TRUNCATE TABLE postbox_messages"},
	}
	for name, statements := range restore {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.MySQL(t)
			b := newBench(t, database)
			handler := &recorder{}
			logger := b.startLogged(database.DB, handler, config("one"))
			for range 3 {
				b.Append(database.DB, drafts(20, func(int) string { return "key" })...)
				b.Eventually(func() bool { return b.Pending() == 0 }, "they are through")
			}
			require.Zero(t, logger.Said("starts over"))
			for _, statement := range statements {
				database.Exec(t, statement)
			}
			b.Append(database.DB, draft("after", "key"))
			b.Eventually(func() bool { return logger.Said("starts over") > 0 }, "it notices")
			b.Eventually(func() bool { return b.Pending() == 0 }, "all is handled")
			require.Contains(t, handler.ids(), "after")
		})
	}
}

// A lane that the database knows under an older token is as lost as one that has a new holder.
func TestDrainer_G6_a_token_that_the_database_has_forgotten_is_never_given_out_again(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		tokens := func() (list []int) {
			for lane := range lanes {
				list = append(list, database.Count(t, "SELECT token FROM postbox_lanes WHERE lane = ?", lane))
			}
			return list
		}
		held := func(holder string) func() bool {
			return func() bool {
				return database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder = ?", holder) == lanes
			}
		}
		handler := newSettling()
		b.Append(database.DB, draft("one", "key"))
		logger := b.startLogged(database.DB, handler, config("one"))
		batch := <-handler.got
		b.Eventually(held("one"), "it has all lanes")
		first := tokens()
		// The standby has not heard of this holder, and somebody else takes the lanes from it.
		database.Exec(t, "UPDATE postbox_lanes SET token = token - 10, holder = 'one before'")
		b.Eventually(func() bool { return logger.Said("lost lanes") == 1 }, "it notices")
		require.ErrorIs(t, b.settleNothing(batch), spool.ErrLost)
		database.Exec(t, "UPDATE postbox_lanes SET token = token - 10, holder = NULL")
		b.Eventually(held("one"), "it has them again")
		for lane, token := range tokens() {
			require.NotEqual(t, first[lane], token)
			require.Greater(t, token, first[lane]-20, "it grows")
		}
		handler.all(batch, spool.Done)
		batch = <-handler.got
		require.Equal(t, "one", batch[0].MessageID, "what was done under a lost token is done again")
		handler.all(batch, spool.Done)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all is handled")
	})
}

// settleNothing settles a batch whose handler had no effect.
func (b *bench) settleNothing(batch []*spool.Message) error {
	return spool.InTx(b.T.Context(), b.Database.DB, b.Statements, func(tx *sql.Tx) error {
		return spool.Settle(b.T.Context(), tx, spool.Directly, batch)
	})
}

// Only the token tells when the ids and the lanes' holders are as they were.
func TestDrainer_starts_over_if_its_lanes_have_an_older_token_in_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &recorder{}
		logger := b.startLogged(database.DB, handler, config("one"))
		b.Append(database.DB, drafts(lanes, func(int) string { return "" })...)
		b.Eventually(func() bool { return b.Pending() == 0 }, "it has all lanes")
		database.Exec(t, "UPDATE postbox_lanes SET token = token - 10")
		b.Eventually(func() bool { return logger.Said("starts over") == 1 }, "it notices")
		b.Append(database.DB, drafts(20, func(int) string { return "key" })...)
		b.Eventually(func() bool { return b.Pending() == 0 }, "it goes on under the tokens that there are")
		require.Len(t, handler.ids(), lanes+20, "once each")
	})
}

// A restored database may have another spool under this id, or none.
func TestDrainer_looks_up_its_spool_again_when_a_database_goes_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &recorder{}
		logger := b.startLogged(database.DB, handler, config("one"))
		b.Append(database.DB, draft("before", "key"))
		b.Eventually(func() bool { return len(handler.ids()) == 1 && b.Pending() == 0 }, "it runs")
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		for _, table := range []string{"spools", "lanes", "members"} {
			_, err = tx.ExecContext(t.Context(), "DELETE FROM postbox_"+table) //nolint:gosec // bounded by what it is made of
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit())
		b.Eventually(func() bool { return logger.Said("starts over") > 0 }, "it notices")
		b.Spool = spool.New(b.Statements, b.Spool.Name())
		b.Append(database.DB, draft("after", "key"))
		b.Eventually(func() bool { return len(handler.ids()) == 2 && b.Pending() == 0 }, "it goes on")
	})
}
