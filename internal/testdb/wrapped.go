package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
)

// OpenWrapped returns a handle with one connection, through a driver that stands around another
// one, as those do that trace.
func (d *Database) OpenWrapped(tb testing.TB) *sql.DB {
	tb.Helper()
	return single(tb, wrappedDriver{driver: d.DB.Driver(), dsn: d.DSN})
}

// OpenUnknown returns a handle with one connection, through a driver that no program knows: its
// connector has no driver, its errors have no codes, and it has no isolation levels.
func (d *Database) OpenUnknown(tb testing.TB) *sql.DB {
	tb.Helper()
	return single(tb, unknownDriver{wrappedDriver{driver: d.DB.Driver(), dsn: d.DSN}})
}

func single(tb testing.TB, connector driver.Connector) *sql.DB {
	tb.Helper()
	db := sql.OpenDB(connector)
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

// wrappedConn has one of the optional methods of the connection inside, without which there are no
// isolation levels.
type wrappedConn struct{ driver.Conn }

// BeginTx begins a transaction of the driver inside.
func (c wrappedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options) //nolint:forcetypeassert // all drivers of the tests have it
}

type unknownDriver struct{ wrappedDriver }

// Driver returns none, as a connector may.
func (unknownDriver) Driver() driver.Driver { return nil }

// Connect opens a connection of the driver inside.
func (u unknownDriver) Connect(context.Context) (driver.Conn, error) {
	conn, err := u.Open(u.dsn)
	return unknownConn{conn}, err
}

type unknownConn struct{ driver.Conn }

// Prepare prepares a statement of the driver inside.
func (c unknownConn) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.Conn.Prepare(query)
	return unknownStmt{stmt}, err
}

type unknownStmt struct{ driver.Stmt }

// Exec hides the type of an error.
func (s unknownStmt) Exec(args []driver.Value) (driver.Result, error) {
	result, err := s.Stmt.Exec(args) //nolint:staticcheck // the simplest of the interfaces
	if err != nil {
		err = errors.New(err.Error())
	}
	return result, err
}

// QueryContext executes the statement.
func (s unknownStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) //nolint:forcetypeassert // all drivers of the tests have it
}
