package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"
)

// Distance is how far a handle is from its database. It counts the round trips of a driver that
// prepares each statement that it executes once, as most drivers do.
type Distance struct {
	trips atomic.Int64
	delay atomic.Int64
}

// Trips returns the number of round trips so far.
func (d *Distance) Trips() int { return int(d.trips.Load()) }

// Delay makes each round trip take longer.
func (d *Distance) Delay(by time.Duration) { d.delay.Store(int64(by)) }

func (d *Distance) travel() {
	d.trips.Add(1)
	if by := d.delay.Load(); by > 0 {
		time.Sleep(time.Duration(by)) //nolint:forbidigo // that is the distance
	}
}

// OpenDistant returns a handle whose round trips are counted.
func (d *Database) OpenDistant(tb testing.TB) (*sql.DB, *Distance) {
	tb.Helper()
	distance := &Distance{}
	db := sql.OpenDB(distantDriver{wrappedDriver{driver: d.DB.Driver(), dsn: d.DSN}, distance})
	tb.Cleanup(func() { _ = db.Close() })
	return db, distance
}

type distantDriver struct {
	wrappedDriver

	distance *Distance
}

// Connect opens a connection of the driver inside.
func (d distantDriver) Connect(context.Context) (driver.Conn, error) {
	conn, err := d.driver.Open(d.dsn)
	return distantConn{conn, d.distance}, err
}

type distantConn struct {
	driver.Conn

	distance *Distance
}

// Prepare prepares a statement of the driver inside.
func (c distantConn) Prepare(query string) (driver.Stmt, error) {
	c.distance.travel()
	stmt, err := c.Conn.Prepare(query)
	return distantStmt{stmt, c.distance}, err
}

// BeginTx begins a transaction of the driver inside.
func (c distantConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	c.distance.travel()
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options) //nolint:forcetypeassert // all drivers of the tests have it
	return distantTx{tx, c.distance}, err
}

type distantTx struct {
	driver.Tx

	distance *Distance
}

// Commit commits the transaction of the driver inside.
func (t distantTx) Commit() error {
	t.distance.travel()
	return t.Tx.Commit()
}

// Rollback rolls it back.
func (t distantTx) Rollback() error {
	t.distance.travel()
	return t.Tx.Rollback()
}

type distantStmt struct {
	driver.Stmt

	distance *Distance
}

// ExecContext executes the statement.
func (s distantStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.distance.travel()
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) //nolint:forcetypeassert // all drivers of the tests have it
}

// QueryContext executes the statement.
func (s distantStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.distance.travel()
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) //nolint:forcetypeassert // all drivers of the tests have it
}
