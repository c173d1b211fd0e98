package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
)

// OpenWrapped returns a handle with one connection, through a driver that stands around another one, as those do that trace.
func (d *Database) OpenWrapped(tb testing.TB) *sql.DB {
	tb.Helper()
	db := sql.OpenDB(wrappedDriver{driver: d.DB.Driver(), dsn: d.DSN})
	db.SetMaxOpenConns(1)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

type wrappedDriver struct {
	driver driver.Driver
	dsn    string
}

// Connect opens a connection of the driver inside.
func (w wrappedDriver) Connect(context.Context) (driver.Conn, error) { return w.Open(w.dsn) }

// Driver returns the driver around it.
func (w wrappedDriver) Driver() driver.Driver { return w }

// Open opens a connection of the driver inside.
func (w wrappedDriver) Open(dsn string) (driver.Conn, error) {
	conn, err := w.driver.Open(dsn)
	if err != nil {
		return nil, err
	}
	return wrappedConn{conn}, nil
}

// wrappedConn has none of the optional methods of the connection inside.
type wrappedConn struct{ driver.Conn }
