package testdb

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Migrate creates the tables of Postbox, which are the same as those of [postbox.Migrate]. In an
// empty database it is much cheaper, since every test has a database of its own: [postbox.Migrate]
// parses all migrations each time, and runs each by itself.
func (d *Database) Migrate(tb testing.TB) *Database {
	tb.Helper()
	switch {
	case d.Dialect == postbox.SQLite:
		d.copyFile(tb)
	case d.hasVersion(tb): // an earlier one
		require.NoError(tb, postbox.Migrate(tb.Context(), d.Postbox()))
	case d.Dialect == postbox.PostgreSQL:
		runScript(tb, d, postgresServer)
	case d.Dialect == postbox.MySQL:
		runScript(tb, d, mysqlServer)
	default:
		tb.Fatalf("no tables for %q", d.Dialect)
	}
	return d
}

// hasVersion says whether there are tables of Postbox.
func (d *Database) hasVersion(tb testing.TB) bool {
	tb.Helper()
	_, err := d.DB.ExecContext(tb.Context(), "SELECT 1 FROM postbox_version")
	if !dialect.LacksTable(err) {
		require.NoError(tb, err)
	}
	return err == nil
}

// copyFile puts a migrated file where the database is to be, unless there is a file already, or the
// database is in memory.
func (d *Database) copyFile(tb testing.TB) {
	tb.Helper()
	address, err := url.Parse(d.DSN)
	require.NoError(tb, err)
	path := address.Path
	if _, err := os.Stat(path); err == nil || path == "" {
		require.NoError(tb, postbox.Migrate(tb.Context(), d.Postbox()))
		return
	}
	file, err := migratedFile()
	require.NoError(tb, err)
	identity := make([]byte, len(file.identity)/2)
	_, _ = rand.Read(identity)
	content := bytes.Replace(file.content, []byte(file.identity), []byte(hex.EncodeToString(identity)), 1)
	require.NoError(tb, os.WriteFile(path, content, 0o600))
}

// sqliteFile is the content of an SQLite database with the tables of Postbox, in which their
// identity stands once, in hexadecimal digits.
type sqliteFile struct {
	content  []byte
	identity string
}

var migratedFile = sync.OnceValues(func() (file sqliteFile, err error) {
	dir, err := os.MkdirTemp("", "postbox")
	if err != nil {
		return file, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "migrated.db")
	db, err := sql.Open("sqlite", sqliteAddress(path))
	if err != nil {
		return file, err
	}
	db.SetMaxOpenConns(1)
	ctx := context.Background()
	err = errors.Join(
		postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: postbox.SQLite}),
		db.QueryRowContext(ctx, "SELECT identity FROM postbox_identity").Scan(&file.identity),
		db.Close(), // which writes the log back to the file
	)
	if err != nil {
		return file, err
	}
	file.content, err = os.ReadFile(path) //nolint:gosec // in a folder of our own
	if n := bytes.Count(file.content, []byte(file.identity)); err == nil && n != 1 {
		err = fmt.Errorf("the identity of the tables stands %d times in the file", n)
	}
	return file, err
})

// runScript runs all migrations as one text.
func runScript(tb testing.TB, d *Database, server func(tb testing.TB, dsn string) (*admin, string)) {
	tb.Helper()
	script, err := scripts[d.Dialect]()
	require.NoError(tb, err)
	a, enter := server(tb, d.DSN)
	a.run(tb, enter, script)
}

var scripts = map[postbox.Dialect]func() (string, error){
	postbox.PostgreSQL: sync.OnceValues(func() (string, error) { return script(postbox.PostgreSQL) }),
	postbox.MySQL:      sync.OnceValues(func() (string, error) { return script(postbox.MySQL) }),
}

// script returns the migrations of a database, which note their versions.
func script(kind postbox.Dialect) (string, error) {
	var text strings.Builder
	err := postbox.WriteMigrations(&text, postbox.Database{Dialect: kind}, 0)
	return text.String(), err
}
