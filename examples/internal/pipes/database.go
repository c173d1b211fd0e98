package pipes

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/lib/pq"  // driver "postgres"
	_ "modernc.org/sqlite" // driver "sqlite"

	postbox "github.com/postbox-go/watermill-postbox"
)

// sqliteOptions are what Postbox asks for.
const sqliteOptions = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"

// connections are enough for a few services in one process: PostgreSQL has 100 by default.
const connections = 20

// openDatabase opens the database. SQL with $1, $2, … runs on both.
func (p *Pipes) openDatabase(s Settings) (err error) {
	switch s.Database {
	case "sqlite":
		return p.openSQLite(s.DSN)
	case "postgres":
		dsn := fromEnvironment(s.DSN, "postgres://postgres:postgres@localhost:5432/postgres?sslmode=disable",
			"DATABASE_URL", "TEST_POSTGRES_DSN")
		if p.DB, err = sql.Open("postgres", dsn); err != nil {
			return err
		}
		p.DB.SetMaxOpenConns(connections)
		p.DB.SetMaxIdleConns(connections)
		p.Dialect, p.ListenDSN = postbox.PostgreSQL, dsn
		p.onClose(p.DB.Close)
		return nil
	default:
		return fmt.Errorf("database %q is neither sqlite nor postgres", s.Database)
	}
}

func (p *Pipes) openSQLite(file string) error {
	if file == "" {
		dir, err := os.MkdirTemp("", "postbox-example-")
		if err != nil {
			return err
		}
		p.onClose(func() error { return os.RemoveAll(dir) })
		file = filepath.Join(dir, "example.db")
	}
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(file)+sqliteOptions)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer: waiting for the connection is cheaper than waiting for its lock
	p.DB, p.Dialect = db, postbox.SQLite
	p.onClose(db.Close)
	return nil
}
