package dialect_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// wrappings are the ways in which an error reaches Classify.
func wrappings(err error) []error {
	return []error{
		err,
		fmt.Errorf("wrapped: %w", err),
		errors.Join(errors.New("other"), err),
		fmt.Errorf("wrapped: %w, %w", errors.New("other"), errors.Join(fmt.Errorf("deeper: %w", err), errors.New("and another"))),
	}
}

var kinds = []dialect.Kind{dialect.PostgreSQL, dialect.MySQL, dialect.SQLite}

// F8: the texts are those of servers that speak other languages.
func TestClassify_F8_by_code_never_by_text(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		of   dialect.Kind
		err  error
		want dialect.ErrorKind
	}{
		{dialect.PostgreSQL, &pq.Error{Code: "40001", Message: "konnte Zugriff nicht serialisieren"}, dialect.Conflict},
		{dialect.PostgreSQL, &pgconn.PgError{Code: "40P01", Message: "Verklemmung entdeckt"}, dialect.Conflict},
		{dialect.PostgreSQL, &pq.Error{Code: "53100", Message: "disque plein"}, dialect.Unavailable},
		{dialect.PostgreSQL, &pq.Error{Code: "57P01", Message: "Verbindung wird abgebrochen"}, dialect.Unavailable},
		{dialect.PostgreSQL, &pq.Error{Code: "57014", Message: "storniere Anfrage"}, dialect.Interrupted},
		{dialect.PostgreSQL, &pgconn.PgError{Code: "25006", Message: "transaction en lecture seule"}, dialect.Unavailable},
		{dialect.PostgreSQL, &pgconn.PgError{Code: "42P01", Message: "la relation n'existe pas"}, dialect.MissingTable},
		{dialect.PostgreSQL, &pq.Error{Code: "23505", Message: "deadlock detected"}, dialect.Other},
		{dialect.MySQL, &mysql.MySQLError{Number: 1213, Message: "Verklemmung"}, dialect.Conflict},
		{dialect.MySQL, &mysql.MySQLError{Number: 1467, Message: "Zähler gesperrt"}, dialect.Conflict},
		{dialect.MySQL, &mysql.MySQLError{Number: 1146, Message: "Tabelle fehlt"}, dialect.MissingTable},
		{dialect.MySQL, &mysql.MySQLError{Number: 1053, Message: "arrêt"}, dialect.Unavailable},
		{dialect.MySQL, &mysql.MySQLError{Number: 1290, Message: "nur lesend"}, dialect.Unavailable},
		{dialect.MySQL, &mysql.MySQLError{Number: 1792, Message: "nur lesend"}, dialect.Unavailable},
		{dialect.MySQL, &mysql.MySQLError{Number: 1836, Message: "nur lesend"}, dialect.Unavailable},
		{dialect.MySQL, &mysql.MySQLError{Number: 1317, Message: "abgebrochen"}, dialect.Interrupted},
		{dialect.MySQL, &mysql.MySQLError{Number: 1969, Message: "abgebrochen"}, dialect.Interrupted},
	} {
		for _, err := range wrappings(test.err) {
			require.Equal(t, test.want, test.of.Classify(err), "%v", err)
			require.True(t, dialect.Coded(err), "%v", err)
		}
		for _, other := range kinds {
			if other != test.of {
				require.Equal(t, dialect.Other, other.Classify(test.err), "%s believes %v", other, test.err)
			}
		}
	}
	for _, kind := range kinds {
		require.Equal(t, dialect.Other, kind.Classify(errors.New("deadlock")))
		require.Equal(t, dialect.Other, kind.Classify(nil))
		require.Equal(t, dialect.Other, kind.Classify((*pq.Error)(nil)))
	}
}

// numbered is an application's error that has a number as its code.
type numbered int

func (n numbered) Error() string { return fmt.Sprint("number ", int(n)) }
func (n numbered) Code() int     { return int(n) }

// stated is an application's error that has a state.
type stated struct{ Code string }

func (s *stated) Error() string    { return "state " + s.Code }
func (s *stated) SQLState() string { return s.Code }

// counted has the field by which MySQL's errors tell their number.
type counted struct{ Number uint16 }

func (c *counted) Error() string { return fmt.Sprint("count ", c.Number) }

func TestClassify_ignores_codes_in_errors_of_an_application(t *testing.T) {
	t.Parallel()
	for _, own := range []error{
		numbered(1), numbered(5), numbered(13), &stated{"40001"}, &stated{"57P01"}, &stated{"42P01"}, &counted{1213}, &counted{1053},
	} {
		for _, err := range wrappings(own) {
			for _, kind := range kinds {
				require.Equal(t, dialect.Other, kind.Classify(err), "%s believes %v", kind, err)
			}
			require.False(t, dialect.Coded(err), "%v", err)
			require.False(t, dialect.LacksTable(err), "%v", err)
			require.False(t, dialect.RolledBack(err), "%v", err)
		}
	}
	both := errors.Join(numbered(5), &stated{"40001"}, &pq.Error{Code: "57P01"})
	require.Equal(t, dialect.Unavailable, dialect.PostgreSQL.Classify(both), "the driver's error is found behind others")
	require.Equal(t, dialect.Other, dialect.SQLite.Classify(both))
}

func TestClassify_a_failed_connection_is_unavailable(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	db, err := sql.Open("pgx", "postgres://nobody@"+address+"/nothing?sslmode=disable")
	require.NoError(t, err)
	defer func() { _ = db.Close() }()

	err = db.PingContext(t.Context())
	require.Equal(t, dialect.Unavailable, dialect.PostgreSQL.Classify(err), "%v", err)
	require.Equal(t, dialect.Other, dialect.MySQL.Classify(err))
	require.False(t, dialect.Coded(err), "no server has said anything")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	conn, err := pgconn.Connect(ended, "postgres://nobody@"+address+"/nothing?sslmode=disable")
	require.Nil(t, conn)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, dialect.Other, dialect.PostgreSQL.Classify(err), "the caller gave up")
}

// The drivers themselves make these errors, for a table that is not there and for a row that
// another transaction has locked.
func TestClassify_errors_of_each_driver(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		kind := dialect.Kind(database.Dialect)
		_, err := database.DB.ExecContext(t.Context(), "DELETE FROM nowhere")
		require.Equal(t, dialect.MissingTable, kind.Classify(fmt.Errorf("delete: %w", err)), "%v", err)
		require.True(t, dialect.LacksTable(errors.Join(errors.New("other"), err)))
		require.True(t, dialect.Coded(err))
		if database.Dialect == postbox.SQLite {
			return // see a busy file
		}
		database.Exec(t, "CREATE TABLE locked (n INTEGER PRIMARY KEY)")
		database.Exec(t, "INSERT INTO locked VALUES (1)")
		one, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = one.Rollback() }()
		_, err = one.ExecContext(t.Context(), "UPDATE locked SET n = 2")
		require.NoError(t, err)
		var n int
		err = database.DB.QueryRowContext(t.Context(), "SELECT n FROM locked FOR UPDATE NOWAIT").Scan(&n)
		require.Equal(t, dialect.Conflict, kind.Classify(err), "%v", err)
		require.True(t, dialect.RolledBack(err))
	})
}

func TestClassify_a_file_that_cannot_be_written_is_unavailable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "read.db")
	db, err := sql.Open("sqlite", "file:"+file)
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE t (n INTEGER)")
	require.NoError(t, err)
	for _, options := range []string{"?mode=ro", "?_pragma=query_only(1)"} {
		reader, err := sql.Open("sqlite", "file:"+file+options)
		require.NoError(t, err)
		defer func() { _ = reader.Close() }()
		_, err = reader.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
		require.Equal(t, dialect.Unavailable, dialect.SQLite.Classify(err), "%s: %v", options, err)
		require.True(t, dialect.SQLite.ReadOnly(err))
	}
}

func TestRolledBack_needs_an_error_of_the_server(t *testing.T) {
	t.Parallel()
	require.True(t, dialect.RolledBack(&pq.Error{Code: "40001"}))
	require.True(t, dialect.RolledBack(&mysql.MySQLError{Number: 1213}))
	require.False(t, dialect.RolledBack(&pq.Error{Code: "57P01"}), "a server that shuts down may have committed first")
	require.False(t, dialect.RolledBack(errors.New("connection reset")))
}

// After another error than a conflict, a savepoint that is gone is news.
func TestEndedByConflict_needs_a_conflict_and_a_savepoint_that_is_gone(t *testing.T) {
	t.Parallel()
	deadlock, gone := &mysql.MySQLError{Number: 1213}, &mysql.MySQLError{Number: 1305}
	require.True(t, dialect.EndedByConflict(fmt.Errorf("append: %w", deadlock), gone))
	require.False(t, dialect.EndedByConflict(deadlock, &mysql.MySQLError{Number: 1317}))
	require.False(t, dialect.EndedByConflict(deadlock, errors.New("connection reset")))
	require.False(t, dialect.EndedByConflict(&mysql.MySQLError{Number: 1062}, gone))
	require.False(t, dialect.EndedByConflict(errors.New("no stock"), gone))
}

func TestClassify_a_busy_file_is_a_conflict(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "busy.db")
	open := func() *sql.DB {
		db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate")
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	one, two := open(), open()
	tx, err := one.BeginTx(context.Background(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = two.BeginTx(context.Background(), nil)
	require.Equal(t, dialect.Conflict, dialect.SQLite.Classify(err))
}
