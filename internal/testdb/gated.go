package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
)

// Gate lets a handle reach its database, or not.
type Gate struct {
	shut     atomic.Pointer[error]
	atCommit atomic.Pointer[func(commit func() error) error]
}

// Shut breaks the connections of the handle, and refuses new ones.
func (g *Gate) Shut() { g.ShutWith(driver.ErrBadConn) }

// ShutWith is Shut with the last error of the server.
func (g *Gate) ShutWith(err error) { g.shut.Store(&err) }

// Open lets the handle connect again.
func (g *Gate) Open() { g.shut.Store(nil) }

// passes returns an error if the gate is shut.
func (g *Gate) passes() error {
	if err := g.shut.Load(); err != nil {
		return *err
	}
	return nil
}

// AtCommit runs a function instead of each commit. If it does not call commit and returns an error,
// the transaction is rolled back.
func (g *Gate) AtCommit(instead func(commit func() error) error) { g.atCommit.Store(&instead) }

var errShut = errors.New("no connection to the database of the test")

// OpenGated returns a handle with one connection, and the gate that it passes. As with real
// drivers, the error of a connection that broke has no code.
func (d *Database) OpenGated(tb testing.TB) (*sql.DB, *Gate) {
	tb.Helper()
	gate := &Gate{}
	return single(tb, gatedDriver{wrappedDriver{driver: d.DB.Driver(), dsn: d.DSN}, gate}), gate
}

type gatedDriver struct {
	wrappedDriver

	gate *Gate
}

// Connect opens a connection of the driver inside.
func (d gatedDriver) Connect(context.Context) (driver.Conn, error) {
	if d.gate.passes() != nil {
		return nil, errShut
	}
	conn, err := d.driver.Open(d.dsn)
	return gatedConn{conn, d.gate}, err
}

type gatedConn struct {
	driver.Conn

	gate *Gate
}

// Prepare prepares a statement of the driver inside.
func (c gatedConn) Prepare(query string) (driver.Stmt, error) {
	if err := c.gate.passes(); err != nil {
		return nil, err
	}
	stmt, err := c.Conn.Prepare(query)
	return gatedStmt{stmt, c.gate}, err
}

// BeginTx begins a transaction of the driver inside.
func (c gatedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if err := c.gate.passes(); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options) //nolint:forcetypeassert // all drivers of the tests have it
	return gatedTx{tx, c.gate}, err
}

type gatedTx struct {
	driver.Tx

	gate *Gate
}

// Commit commits, unless the connection has broken before.
func (t gatedTx) Commit() error {
	committed := false
	commit := func() error {
		if err := t.gate.passes(); err != nil {
			return err
		}
		committed = true
		return t.Tx.Commit()
	}
	end := func(commit func() error) error { return commit() }
	if instead := t.gate.atCommit.Load(); instead != nil {
		end = *instead
	}
	err := end(commit)
	if !committed {
		_ = t.Rollback() // as the server does
	}
	return err
}

type gatedStmt struct {
	driver.Stmt

	gate *Gate
}

// ExecContext executes the statement.
func (s gatedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.gate.passes(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) //nolint:forcetypeassert // all drivers of the tests have it
}

// QueryContext executes the statement.
func (s gatedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.gate.passes(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) //nolint:forcetypeassert // all drivers of the tests have it
}
