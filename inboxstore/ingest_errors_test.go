package inboxstore_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// refuse has the database refuse a payload: PostgreSQL as late as it can, when it commits.
func refuse(t *testing.T, database *testdb.Database, payload string) {
	t.Helper()
	switch database.Dialect {
	case postbox.PostgreSQL:
		database.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'refused'; END $$`)
		database.Exec(t, `CREATE CONSTRAINT TRIGGER refused AFTER INSERT ON postbox_messages DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW WHEN (NEW.payload = '`+payload+`') EXECUTE FUNCTION refuse()`)
	case postbox.MySQL:
		database.Exec(t, `ALTER TABLE postbox_messages ADD CONSTRAINT refused CHECK (payload <> '`+payload+`')`)
	case postbox.SQLite:
		database.Exec(t, `CREATE TRIGGER refused BEFORE INSERT ON postbox_messages
			WHEN CAST(NEW.payload AS TEXT) = '`+payload+`' BEGIN SELECT RAISE(ABORT, 'refused'); END`)
	}
}

func TestIngest_F16_a_message_that_the_database_refuses_fails_alone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		refuse(t, database, "payload of 013")
		c, release := newBacklog(t, database)
		ids := numbered(20)
		c.enqueue(ids...)
		release(true)
		var stored []string
		for _, id := range ids {
			r := c.result(id)
			require.Equal(t, id != "013", r.fresh, id)
			require.Equal(t, id != "013", r.err == nil, "%s: %v", id, r.err)
			if r.err == nil {
				stored = append(stored, id)
			}
		}
		require.Equal(t, append([]string{"blocker"}, stored...), c.stored(), "in the order of their arrival")
		require.LessOrEqual(t, c.appends.All.Load(), int64(11), "it takes two commits for each halving of 20")

		_, err := deferred(t.Context(), c.store, "013")
		require.Error(t, err, "its claim was rolled back with it: it is no duplicate")
		require.NotErrorIs(t, err, postbox.ErrCommitUnknown)
	})
}

// conflict has the server itself raise the code of a conflict where it shall insert a payload, so
// many times. The counter survives a rollback.
func conflict(t *testing.T, database *testdb.Database, payload, times string) {
	t.Helper()
	if database.Dialect == postbox.PostgreSQL {
		database.Exec(t, "CREATE SEQUENCE tries")
		database.Exec(t, `CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('tries') <= `+times+` THEN RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001'; END IF;
			RETURN NEW; END $$`)
		database.Exec(t, `CREATE TRIGGER conflict BEFORE INSERT ON postbox_messages
			FOR EACH ROW WHEN (NEW.payload = '`+payload+`') EXECUTE FUNCTION conflict()`)
		return
	}
	database.Exec(t, "CREATE TABLE tries (n INTEGER NOT NULL) ENGINE = MyISAM")
	database.Exec(t, "INSERT INTO tries VALUES (0)")
	database.Exec(t, `CREATE TRIGGER conflict BEFORE INSERT ON postbox_messages FOR EACH ROW
		IF NEW.payload = '`+payload+`' THEN
			UPDATE tries SET n = n + 1;
			IF (SELECT n FROM tries) <= `+times+` THEN
				SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt';
			END IF;
		END IF`)
}

func TestIngest_conflicts_are_run_again(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		database := open(t).Migrate(t)
		conflict(t, database, "payload of 005", "4")
		c, release := newBacklog(t, database)
		ids := numbered(10)
		c.enqueue(ids...)
		release(true)
		for _, id := range ids {
			require.Equal(t, result{fresh: true}, c.result(id), id)
		}
		require.EqualValues(t, 5, c.appends.All.Load())
		require.Equal(t, append([]string{"blocker"}, ids...), c.stored())
	}
}

func TestIngest_lasting_conflict_is_an_error_of_all_deliveries(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		database := open(t).Migrate(t)
		conflict(t, database, "payload of 005", "1000")
		c, release := newBacklog(t, database)
		ids := numbered(10)
		c.enqueue(ids...)
		release(true)
		for _, id := range ids {
			require.Equal(t, dialect.Conflict, dialect.Kind(database.Dialect).Classify(c.result(id).err), id)
		}
		require.EqualValues(t, 5, c.appends.All.Load(), "it is tried a few times, and not taken apart")
		require.Equal(t, []string{"blocker"}, c.stored())
	}
}

// Whether the connection or the whole server went away under a commit, nothing is lost, and a
// redelivery tells. Also covers G2.
func TestIngest_F26_killed_connection_loses_nothing(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		database := open(t)
		c, release := newBacklog(t, database.Migrate(t))
		next := c.hold(database.Open(t), "005") // the commit after this one has to wait too
		ids := numbered(10)
		c.enqueue(ids...)
		release(true)
		require.NoError(t, c.result("blocker").err)
		c.awaitWaiting(0)
		kill(t, database)
		next(false)
		for _, id := range ids {
			if c.result(id).err != nil {
				_, err := deferred(t.Context(), c.store, id)
				require.NoError(t, err)
			}
		}
		require.ElementsMatch(t, append(ids, "blocker"), c.stored())
		require.Equal(t, len(ids)+2, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
	}
}

// kill ends a connection that waits for a claim.
func kill(t *testing.T, database *testdb.Database) {
	t.Helper()
	end := "SELECT pg_terminate_backend(?)"
	if database.Dialect == postbox.MySQL {
		end = "KILL ?"
	}
	database.Exec(t, end, waitingClaim(t, database))
}

// waitingClaim returns the connection that waits for a claim in this test's database, as soon as
// one does.
func waitingClaim(t *testing.T, database *testdb.Database) (id int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		var found bool
		id, found = findWaitingClaim(t, database)
		return found
	}, inboxtest.Patience, 5*time.Millisecond)
	return id
}

// findWaitingClaim returns the connection whose claim waits, if there is one.
func findWaitingClaim(t *testing.T, database *testdb.Database) (id int64, found bool) {
	t.Helper()
	waiting := `SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%postbox_claims%'
		AND EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE l.pid = pg_stat_activity.pid AND n.nspname = current_schema())`
	if database.Dialect == postbox.MySQL {
		waiting = `SELECT id FROM information_schema.processlist WHERE db = database() AND info LIKE 'INSERT IGNORE INTO postbox_claims%'
			AND state LIKE 'update%'` // a statement that has ended is listed for a moment more, in another state
	}
	err := database.DB.QueryRowContext(t.Context(), waiting).Scan(&id)
	if err != nil {
		require.ErrorIs(t, err, sql.ErrNoRows)
	}
	return id, err == nil
}

func TestIngest_G7_an_outage_of_the_database_is_an_error_of_all_deliveries(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c, release := newBacklog(t, database.Migrate(t))
		ids := numbered(20)
		c.enqueue(ids...)
		c.appends.Away.Store(true)
		release(true)
		for _, id := range ids {
			require.Error(t, c.result(id).err, id)
		}
		require.Less(t, c.appends.Refused.Load(), int64(len(ids)), "not one try for each")
		for _, id := range append(ids, "blocker") { // the broker delivers again, to a process that has a database
			_, err := deferred(t.Context(), c.stranger, id)
			require.NoError(t, err)
		}
		require.Equal(t, append([]string{"blocker"}, ids...), c.stored())
	})
}

func TestIngest_without_tables_says_what_to_do(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		database := open(t)
		_, err := deferred(t.Context(), inboxtest.StoreFor(t, database, database.DB, nil), "1")
		require.ErrorContains(t, err, "postbox.Migrate")
	}
}
