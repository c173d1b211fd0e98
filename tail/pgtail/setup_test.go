package pgtail_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

func TestNew_names_all_mistakes(t *testing.T) {
	t.Parallel()
	_, err := pgtail.New(pgtail.Config{Publication: "Not-Plain"})
	require.ErrorContains(t, err, "DSN is missing")
	require.ErrorContains(t, err, "Publication")
	_, err = pgtail.New(pgtail.Config{DSN: "postgres://role:secret@host:port/db"})
	require.ErrorContains(t, err, "DSN cannot be read")
	require.NotContains(t, err.Error(), "secret")
}

func TestSetup_can_be_repeated_and_undone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, name := t.Context(), w.publication()
	require.NoError(t, pgtail.Setup(ctx, w.Postbox(), name))
	require.NoError(t, pgtail.Check(ctx, w.Postbox(), pgtail.Config{DSN: w.DSN, Publication: name}))

	other := w.Postbox() // its tables join the publication
	other.Prefix = "other_"
	require.NoError(t, postbox.Migrate(ctx, other))
	require.NoError(t, pgtail.Setup(ctx, other, name))
	require.Equal(t, 8, w.tables())
	require.NoError(t, pgtail.Remove(ctx, other, name))
	require.Equal(t, 4, w.tables())
	require.NoError(t, pgtail.Remove(ctx, w.Postbox(), name))
	require.NoError(t, pgtail.Remove(ctx, w.Postbox(), name))
	require.Equal(t, 0, w.Count(t, "SELECT COUNT(*) FROM pg_publication WHERE pubname = ?", name))
	require.ErrorContains(t, pgtail.Check(ctx, w.Postbox(), pgtail.Config{DSN: w.DSN, Publication: name}), "run pgtail.Setup")
}

// tables returns how many tables are in the publication. The table of waiting messages, which
// inherits, is among them once.
func (w *world) tables() int {
	return w.Count(w.T, "SELECT COUNT(*) FROM pg_publication_tables WHERE pubname = ?", w.publication())
}

func TestSetup_works_on_PostgreSQL_alone(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	require.ErrorContains(t, pgtail.Setup(t.Context(), database.Postbox(), ""), "only that of PostgreSQL")
	follower, err := pgtail.New(pgtail.Config{DSN: "postgres://localhost/db"})
	require.NoError(t, err)
	_, err = forwarder.New(database.Postbox(), &broker{}, forwarder.Config{Tail: follower}, nil)
	require.ErrorContains(t, err, "leave Tail empty")
}

func TestCheck_names_a_publication_that_sends_more_than_inserts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(t, "ALTER PUBLICATION "+w.publication()+" SET (publish = 'insert, update')")
	err := pgtail.Check(t.Context(), w.Postbox(), pgtail.Config{DSN: w.DSN, Publication: w.publication()})
	require.ErrorContains(t, err, "inserts alone")
}

// The role that reads the log needs REPLICATION and no right on any table.
func TestTail_needs_REPLICATION_alone(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	reader := w.role("LOGIN REPLICATION")
	require.NoError(t, pgtail.Check(t.Context(), w.Postbox(), pgtail.Config{DSN: reader, Publication: w.publication()}))
	f := w.start(b, forwarder.Config{Tail: w.tail(func(c *pgtail.Config) { c.DSN = reader })})
	w.follows(f)
	f.stop(t)

	none := w.role("LOGIN")
	err := pgtail.Check(t.Context(), w.Postbox(), pgtail.Config{DSN: none, Publication: w.publication()})
	require.ErrorContains(t, err, "give it LOGIN and REPLICATION")
}

// role makes a role that may use the schema, and returns its address.
func (w *world) role(attributes string) (dsn string) {
	w.Helper()
	name := fmt.Sprintf("reader_%d_%d", os.Getpid(), time.Now().UnixNano())
	var schema string
	require.NoError(w, w.DB.QueryRowContext(w.Context(), "SELECT current_schema()").Scan(&schema))
	w.Exec(w.T, "CREATE ROLE "+name+" PASSWORD '"+name+"' "+attributes)
	w.Exec(w.T, "GRANT USAGE ON SCHEMA "+schema+" TO "+name)
	w.Cleanup(func() {
		_, _ = w.DB.Exec("DROP OWNED BY " + name + "; DROP ROLE " + name) //nolint:noctx // the test's context is over
	})
	u, err := url.Parse(w.DSN)
	require.NoError(w, err)
	u.User = url.UserPassword(name, name)
	return u.String()
}

// openAs opens the database as a role.
func (w *world) openAs(dsn string) *sql.DB {
	w.Helper()
	db, err := sql.Open("postgres", dsn)
	require.NoError(w, err)
	w.Cleanup(func() { _ = db.Close() })
	return db
}

// Without a publication a forwarder polls, and says so once; one that must read the log ends.
func TestTail_polls_if_it_cannot_read_the_log_or_ends_if_it_must(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	require.NoError(t, pgtail.Remove(t.Context(), w.Postbox(), w.publication()))
	f := w.start(b, forwarder.Config{Tail: w.tail()})
	<-f.Running()
	w.eventually(func() bool { return f.log.count("run pgtail.Setup") == 1 }, "it says what is missing")
	w.publishUntilSeen(b)

	must := w.start(&broker{}, forwarder.Config{Tail: w.tail(func(c *pgtail.Config) { c.Required = true })})
	require.ErrorContains(t, <-must.ended, "run pgtail.Setup")

	require.NoError(t, pgtail.Setup(t.Context(), w.Postbox(), w.publication()))
	w.follows(f)
	require.Equal(t, 1, f.log.count("run pgtail.Setup"), "it is logged once")
	f.stop(t)
}

// publishUntilSeen publishes a message that a poll finds.
func (w *world) publishUntilSeen(b *broker) {
	w.Helper()
	w.publish("orders", keyed("polled", "a"))
	w.eventually(func() bool { return b.has("polled") }, "polling finds the message")
}

func TestTail_refuses_the_log_of_another_schema(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	another := newWorld(t)
	err := pgtail.Check(t.Context(), w.Postbox(), pgtail.Config{DSN: another.DSN, Publication: w.publication()})
	require.ErrorContains(t, err, "another database or schema")
}

// The role that makes the publication owns the tables and may create objects in the database.
func TestSetup_says_which_right_is_missing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	err := pgtail.Setup(t.Context(), w.On(w.openAs(w.role("LOGIN"))), w.publication()+"_2")
	require.ErrorContains(t, err, "as the owner of the table")
}

// A server whose wal_level is too low for the log. That of the tests may have any, so a function of
// this schema, which comes before that of PostgreSQL, answers for the setting.
func TestTail_says_that_wal_level_must_be_logical(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	database.Exec(t, `CREATE FUNCTION current_setting(name text) RETURNS text LANGUAGE sql AS
		$$ SELECT CASE name WHEN 'wal_level' THEN 'replica' ELSE pg_catalog.current_setting(name) END $$`)
	address, err := url.Parse(database.DSN)
	require.NoError(t, err)
	query := address.Query()
	query.Set("search_path", query.Get("search_path")+",pg_catalog")
	address.RawQuery = query.Encode()
	db, err := sql.Open(database.Driver, address.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	err = pgtail.Setup(t.Context(), database.On(db), "")
	require.ErrorContains(t, err, "wal_level is replica: set wal_level = logical and restart the server")
}

// A context with a deadline ends a forwarder like any other.
func TestTail_ends_with_a_deadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f, err := forwarder.New(w.Postbox(), &broker{}, forwarder.Config{Tail: w.tail()}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.NoError(t, f.Run(ctx))
}
