package drain_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// readOnly makes the sessions of a pool read-only, or lets them write again.
var readOnly = map[postbox.Dialect]map[bool]string{
	postbox.PostgreSQL: {true: "SET default_transaction_read_only = on", false: "SET default_transaction_read_only = off"},
	postbox.MySQL:      {true: "SET SESSION TRANSACTION READ ONLY", false: "SET SESSION TRANSACTION READ WRITE"},
	postbox.SQLite:     {true: "PRAGMA query_only = 1", false: "PRAGMA query_only = 0"},
}

// failedOver is the address of a server that is an old primary for a while: also new sessions
// cannot write.
type failedOver struct {
	through driver.Driver
	dsn     string
	session string // makes a session read-only
	old     atomic.Bool
}

// open returns a pool of one connection.
func (f *failedOver) open(t *testing.T) *sql.DB {
	t.Helper()
	db := sql.OpenDB(f)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	return db
}

func (f *failedOver) Driver() driver.Driver { return f.through }

func (f *failedOver) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := f.through.Open(f.dsn)
	if err != nil || !f.old.Load() {
		return conn, err
	}
	_, err = conn.(driver.ExecerContext).ExecContext(ctx, f.session, nil) //nolint:forcetypeassert // all drivers have it
	return conn, err
}

// The server is read-only for a while, as an old primary is after a failover. What has been handled
// is settled afterwards.
func TestDrainer_G7_a_server_that_is_read_only_is_an_outage(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		server := &failedOver{through: database.DB.Driver(), dsn: database.DSN, session: readOnly[database.Dialect][true]}
		db := server.open(t)
		handler := &recorder{}
		log := b.startLogged(db, handler, config("one"))
		b.Append(database.DB, draft("before", "k"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "the first message is done")

		server.old.Store(true)
		_, err := db.ExecContext(t.Context(), readOnly[database.Dialect][true])
		require.NoError(t, err)
		b.Eventually(func() bool { return log.Said("Postbox cannot write to its database, which is read-only") == 1 }, "it is said")
		b.Append(database.DB, draft("meanwhile", "k"))
		for range 5 { // it goes on trying
			tried := log.Said("Postbox is blocked: ")
			b.Eventually(func() bool { return log.Said("Postbox is blocked: ") > tried }, "it is tried again")
		}
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts > 0 OR state > 0"))

		server.old.Store(false)
		_, err = db.ExecContext(t.Context(), readOnly[database.Dialect][false])
		require.NoError(t, err)
		b.Eventually(func() bool { return b.Pending() == 0 }, "it goes on")
		require.Equal(t, []string{"before", "meanwhile"}, handler.ids())
		require.Len(t, log.At(watermill.ErrorLogLevel), 1, "it is said once")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	})
}

// The role has a limit for its statements, and another transaction holds up one of the engine's.
func TestDrainer_says_that_the_server_ended_a_statement(t *testing.T) {
	t.Parallel()
	limits := map[postbox.Dialect]string{
		postbox.PostgreSQL: "SET statement_timeout = '50ms'", postbox.MySQL: "SET max_statement_time = 0.05",
	}
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		db := database.Open(t)
		db.SetMaxOpenConns(1)
		_, err := db.ExecContext(t.Context(), limits[database.Dialect])
		require.NoError(t, err)
		handler := &recorder{}
		log := b.startLogged(db, handler, config("one"))
		b.Append(database.DB, draft("before", ""))
		b.Eventually(func() bool { return b.Pending() == 0 }, "the first message is done")
		blocker, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = blocker.Rollback() }()
		_, err = blocker.ExecContext(t.Context(), "UPDATE postbox_members SET sharing = sharing")
		require.NoError(t, err)
		if database.Dialect == postbox.MySQL { // which locks no row for what changes nothing
			_, err = blocker.ExecContext(t.Context(), "SELECT holder FROM postbox_members FOR UPDATE")
			require.NoError(t, err)
		}
		b.Eventually(func() bool {
			return log.Said("Postbox could not finish a statement: it was ended by statement_timeout") == 1
		}, "it is said")
		require.NoError(t, blocker.Rollback())
		b.Append(database.DB, draft("after", ""))
		b.Eventually(func() bool { return b.Pending() == 0 }, "it goes on")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	})
}

// A column is gone, and no read works. What else the drainer does works, and is no end of it.
func TestDrainer_says_once_that_its_reads_fail(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &recorder{}
		c := config("one")
		c.Renew = 5 * time.Millisecond // there is a renewal in each pause
		log := b.startLogged(database.DB, handler, c)
		b.Append(database.DB, draft("before", "k"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "the first message is done")
		rename := func(from, to string) { // which may meet a deadlock, or a file that is busy
			b.Eventually(func() bool {
				_, err := database.DB.ExecContext(t.Context(), "ALTER TABLE postbox_messages RENAME COLUMN "+from+" TO "+to)
				return err == nil
			}, "the column is renamed")
		}
		rename("payload", "gone")
		b.Eventually(func() bool { return log.Said("Postbox is blocked by an error of its database") == 1 }, "it is said")
		for range 20 {
			tried := log.Said("Postbox is blocked: ")
			b.Eventually(func() bool {
				b.Spool.Wake() // as one who has written does
				return log.Said("Postbox is blocked: ") > tried
			}, "it is tried again")
		}
		require.Zero(t, log.Said("Postbox works again"))

		rename("gone", "payload")
		b.Eventually(func() bool { return log.Said("Postbox works again") == 1 }, "its end is said")
		b.Append(database.DB, draft("after", "k"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "it goes on")
		require.Equal(t, []string{"before", "after"}, handler.ids())
		require.Len(t, log.At(watermill.ErrorLogLevel), 1, "it was said once")
	})
}

// The sessions become read-only, and the leases need no renewal. The drainer reads, and cannot
// remove what has been handled, which it does beside its reads.
func TestDrainer_says_once_that_it_cannot_remove_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		server := &failedOver{through: database.DB.Driver(), dsn: database.DSN, session: readOnly[database.Dialect][true]}
		db := server.open(t)
		handler := &recorder{}
		c := config("one")
		c.Renew, c.Lease = time.Hour, 2*time.Hour
		log := b.startLogged(db, handler, c)
		b.Append(database.DB, draft("before", "k"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "the first message is done")

		server.old.Store(true)
		_, err := db.ExecContext(t.Context(), readOnly[database.Dialect][true])
		require.NoError(t, err)
		b.Append(database.DB, draft("meanwhile", "k"))
		b.Eventually(func() bool { return log.Said("Postbox cannot write to its database") == 1 }, "it is said")
		for range 5 {
			tried := log.Said("Postbox is blocked: ")
			b.Eventually(func() bool { return log.Said("Postbox is blocked: ") > tried }, "it is tried again")
		}
		require.Zero(t, log.Said("Postbox works again"))

		server.old.Store(false)
		_, err = db.ExecContext(t.Context(), readOnly[database.Dialect][false])
		require.NoError(t, err)
		b.Eventually(func() bool { return b.Pending() == 0 && log.Said("Postbox works again") == 1 }, "it goes on")
		require.Equal(t, []string{"before", "meanwhile"}, handler.ids())
		require.Len(t, log.At(watermill.ErrorLogLevel), 1, "it was said once")
	})
}
