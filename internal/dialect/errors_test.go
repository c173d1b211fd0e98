package dialect_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// F8: the texts are those of servers that speak other languages.
func TestClassify_F8_by_code_never_by_text(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want dialect.ErrorKind
	}{
		{&pq.Error{Code: "40001", Message: "konnte Zugriff nicht serialisieren"}, dialect.Conflict},
		{&pgconn.PgError{Code: "40P01", Message: "Verklemmung entdeckt"}, dialect.Conflict},
		{&pq.Error{Code: "53100", Message: "disque plein"}, dialect.Unavailable},
		{&pq.Error{Code: "57P01", Message: "Verbindung wird abgebrochen"}, dialect.Unavailable},
		{&pq.Error{Code: "57014", Message: "storniere Anfrage"}, dialect.Other},
		{&pgconn.PgError{Code: "42P01", Message: "la relation n'existe pas"}, dialect.MissingTable},
		{&pq.Error{Code: "23505", Message: "deadlock detected"}, dialect.Other},
		{&mysql.MySQLError{Number: 1213, Message: "Verklemmung"}, dialect.Conflict},
		{&mysql.MySQLError{Number: 1146, Message: "Tabelle fehlt"}, dialect.MissingTable},
		{&mysql.MySQLError{Number: 1053, Message: "arrêt"}, dialect.Unavailable},
		{errors.New("deadlock"), dialect.Other},
		{nil, dialect.Other},
	} {
		require.Equal(t, test.want, dialect.Classify(test.err), "%v", test.err)
		if test.err != nil {
			require.Equal(t, test.want, dialect.Classify(fmt.Errorf("wrapped: %w", errors.Join(errors.New("other"), test.err))))
		}
	}
}

func TestRolledBack_needs_the_word_of_the_server(t *testing.T) {
	t.Parallel()
	require.True(t, dialect.RolledBack(&pq.Error{Code: "40001"}))
	require.True(t, dialect.RolledBack(&mysql.MySQLError{Number: 1213}))
	require.False(t, dialect.RolledBack(&pq.Error{Code: "57P01"}), "a server that shuts down may have committed first")
	require.False(t, dialect.RolledBack(errors.New("connection reset")))
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
	require.Equal(t, dialect.Conflict, dialect.Classify(err))
}
