package inbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// patient is inboxtest.Transactional, with a lease that need not be renewed while a test runs.
func patient(c *queue.Config) { c.Transactional, c.Lease = true, 5*time.Minute }

// sessions are the connections of a pool that a test changes: a handler has one, and the engine the
// other.
const sessions = 2

// fewSessions returns the queue through a pool of these connections.
func (b *queueBench) fewSessions() *queueBench {
	db := b.Open(b.T)
	db.SetMaxOpenConns(sessions)
	return b.over(db)
}

// server is a server whose sessions begin with a statement. A connection to it is the driver's own.
type server struct {
	driver driver.Driver
	dsn    string
	begin  atomic.Pointer[string]
}

// Driver returns the driver.
func (s *server) Driver() driver.Driver { return s.driver }

// Connect begins a session.
func (s *server) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := s.driver.Open(s.dsn)
	statement := s.begin.Load()
	if err != nil || statement == nil {
		return conn, err
	}
	_, err = conn.(driver.ExecerContext).ExecContext(ctx, *statement, nil) //nolint:forcetypeassert // all drivers have it
	return conn, err
}

// setAll executes a statement in each session of the pool, and at the beginning of all later ones.
func (s *server) setAll(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	s.begin.Store(&statement)
	for range sessions {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		_, err = conn.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
}

// The server becomes read-only under handlers, as an old primary does in a failover.
func TestQueue_G7_a_handler_on_a_server_that_is_read_only_counts_no_attempt(t *testing.T) {
	t.Parallel()
	begin := map[postbox.Dialect]string{
		postbox.PostgreSQL: "SET default_transaction_read_only = on", postbox.MySQL: "SET SESSION TRANSACTION READ ONLY",
	}
	end := map[postbox.Dialect]string{
		postbox.PostgreSQL: "SET default_transaction_read_only = off", postbox.MySQL: "SET SESSION TRANSACTION READ WRITE",
	}
	testdb.EachServerOfSession(t, func(t *testing.T, database *testdb.Database) { // on SQLite no transaction begins
		b := newQueueBench(t, database)
		server := &server{driver: b.Pool.Driver(), dsn: b.DSN}
		db := sql.OpenDB(server)
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(sessions)
		worker := b.over(db)
		var runs inboxtest.Journal
		worker.Start(inboxtest.Quick(patient), func(msg *message.Message) error {
			runs.Add(msg.UUID)
			return worker.Effect(msg.Context(), msg)
		})
		b.Put("a/1")
		b.Drained()
		server.setAll(t, db, begin[database.Dialect])
		b.Put("a/2", "b/1")
		b.Eventually(func() bool { return len(runs.All()) > 5 }, "handlers meet the server")
		require.Equal(t, 2, b.Untried())
		server.setAll(t, db, end[database.Dialect])
		b.Drained()
		require.ElementsMatch(t, []string{"a/1", "a/2", "b/1"}, b.Effects())
		require.LessOrEqual(t, len(b.Failures()), 1, "where the server becomes writable before it is asked why the handler failed, that counts")
		require.Empty(t, b.Dead())
	})
}

// A handler that makes its own transaction read-only must not look like an outage, which would stop
// its queue.
func TestQueue_G7_a_transaction_that_the_handler_made_read_only_is_its_failure(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("good", "bad")
		b.Start(inboxtest.Quick(inboxtest.Transactional), func(msg *message.Message) error {
			if msg.UUID == "good" {
				return b.Effect(msg.Context(), msg)
			}
			tx, _ := postbox.TxFromContext(msg.Context())
			forbid := []string{"SET TRANSACTION READ ONLY"}
			if database.Dialect == postbox.MySQL {
				forbid = []string{"ROLLBACK", "START TRANSACTION READ ONLY"}
			}
			for _, statement := range forbid {
				if _, err := tx.ExecContext(msg.Context(), statement); err != nil {
					return err
				}
			}
			return b.Effect(msg.Context(), msg)
		})
		b.Drained()
		require.Equal(t, []string{"good"}, b.Effects())
		require.Equal(t, []string{"bad"}, b.Dead())
		require.Len(t, b.Failures(), 3)
	})
}

// overrun begins a statement that takes longer than the server allows.
func overrun(ctx context.Context, tx *sql.Tx, dialect postbox.Dialect) error {
	statement := "SET STATEMENT max_statement_time = 0.02 FOR SELECT SLEEP(20)"
	if dialect == postbox.PostgreSQL {
		if _, err := tx.ExecContext(ctx, "SET LOCAL statement_timeout = '20ms'"); err != nil {
			return err
		}
		statement = "SELECT pg_sleep(20)"
	}
	var slept any
	return tx.QueryRowContext(ctx, statement).Scan(&slept)
}

// A limit of the role ends a statement of the handler.
func TestQueue_G7_a_statement_of_the_handler_that_the_server_ended_is_its_failure(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*queue.Config){"transactional": inboxtest.Transactional, "not transactional": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.Put("good", "slow")
				var runs inboxtest.Journal
				b.Start(inboxtest.Quick(change), func(msg *message.Message) error {
					if runs.Add(msg.UUID); msg.UUID == "good" {
						return nil
					}
					tx, inTx := postbox.TxFromContext(msg.Context())
					if !inTx {
						own, err := b.DB.BeginTx(msg.Context(), nil)
						if err != nil {
							return err
						}
						defer func() { _ = own.Rollback() }()
						tx = own
					}
					return overrun(msg.Context(), tx, database.Dialect)
				})
				b.Drained()
				require.Equal(t, 3, runs.Times("slow"))
				require.Equal(t, []string{"slow"}, b.Dead())
				require.Len(t, b.Failures(), 3)
			})
		})
	}
}

// Nothing can be written in the transaction of an inbox, as on a standby: the claim, which comes
// first, says so. lib/pq says of each transaction whether it writes.
func TestInbox_G7_a_server_that_is_read_only_is_no_failure_of_the_handler(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		standby := b.over(b.Pool)
		standby.Store = inboxtest.StoreFor(t, database, b.Pool, func(c *inboxstore.Config) { c.TxOptions = &sql.TxOptions{ReadOnly: true} })
		err := deliver(t.Context(), standby.inbox(), "1", func(context.Context, *message.Message) error {
			t.Error("the handler runs")
			return nil
		})
		require.ErrorContains(t, err, "claim message")
		require.Empty(t, b.Failures())
		require.NoError(t, deliver(t.Context(), b.inbox(), "1", b.Effect))
		require.Equal(t, []string{"1"}, b.Effects())
	})
}

// The server becomes read-only while the handler is at work, as an old primary does in a failover.
func TestInbox_G7_a_server_that_becomes_read_only_under_a_handler_counts_no_attempt(t *testing.T) {
	t.Parallel()
	begin := map[postbox.Dialect]string{
		postbox.PostgreSQL: "SET default_transaction_read_only = on", postbox.MySQL: "SET SESSION TRANSACTION READ ONLY",
	}
	refuse := map[postbox.Dialect]string{
		postbox.PostgreSQL: "DO $$ BEGIN RAISE EXCEPTION 'read-only' USING ERRCODE = '25006'; END $$",
		postbox.MySQL:      "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'read-only'",
	}
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		server := &server{driver: b.Pool.Driver(), dsn: b.DSN}
		db := sql.OpenDB(server)
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(-1) // each connection begins as the server is by then
		inbox := b.over(db).inbox()
		statement := begin[database.Dialect]
		for range deliveries {
			server.begin.Store(nil)
			_, err := inbox.Process(t.Context(), message.NewMessage("1", nil), func(msg *message.Message) ([]*message.Message, error) {
				if err := b.Effect(msg.Context(), msg); err != nil {
					return nil, err
				}
				server.begin.Store(&statement)
				tx, _ := postbox.TxFromContext(msg.Context())
				_, err := tx.ExecContext(msg.Context(), refuse[database.Dialect])
				return nil, err
			})
			require.ErrorContains(t, err, "the database is read-only")
		}
		require.Empty(t, b.Failures())
		server.begin.Store(nil)
		require.NoError(t, deliver(t.Context(), inbox, "1", b.Effect))
		require.Equal(t, []string{"1"}, b.Effects())
		require.Empty(t, b.Dead())
	})
}
