package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"

	_ "modernc.org/sqlite" // driver "sqlite"

	postbox "github.com/postbox-go/watermill-postbox"
)

// tables of the shop. Nothing in them keeps an order from being paid twice: if the inbox failed, it
// would show.
const tables = `
	CREATE TABLE IF NOT EXISTS orders (
		id       INTEGER PRIMARY KEY AUTOINCREMENT,
		customer TEXT NOT NULL,
		cents    INTEGER NOT NULL,
		paid     INTEGER NOT NULL DEFAULT 0
	);
	CREATE TABLE IF NOT EXISTS payments (
		id       INTEGER PRIMARY KEY AUTOINCREMENT,
		order_id INTEGER NOT NULL,
		customer TEXT NOT NULL,
		cents    INTEGER NOT NULL
	);
	CREATE TABLE IF NOT EXISTS accounts (
		customer TEXT PRIMARY KEY,
		charged  INTEGER NOT NULL DEFAULT 0
	);`

// sqliteOptions are what Postbox asks for, and synchronous(FULL), so that a commit also survives
// the loss of power.
const sqliteOptions = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"

// openDatabase opens the file and makes what is missing in it: the tables of the shop, and those of
// Postbox beside them.
func openDatabase(ctx context.Context, file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(file)+sqliteOptions)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer: waiting for the connection is cheaper than waiting for its lock
	err = postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: postbox.SQLite})
	if err == nil {
		_, err = db.ExecContext(ctx, tables+sabotageTables)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}
