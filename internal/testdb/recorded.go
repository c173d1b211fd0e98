package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"testing"
)

// Statement is one that a program has executed.
type Statement struct {
	Text string
	Args []any
}

// Record is a list of the statements that return rows. It is safe for concurrent use.
type Record struct {
	mu         sync.Mutex
	statements []Statement
}

// Take returns the statements since the last call.
func (r *Record) Take() []Statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.statements
	r.statements = nil
	return taken
}

func (r *Record) add(text string, args []driver.NamedValue) {
	statement := Statement{Text: text}
	for _, arg := range args {
		statement.Args = append(statement.Args, arg.Value)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statements = append(r.statements, statement)
}

// OpenRecorded returns a handle with one connection, and a record of what is executed through it.
func (d *Database) OpenRecorded(tb testing.TB) (*sql.DB, *Record) {
	tb.Helper()
	record := &Record{}
	return single(tb, recordedDriver{wrappedDriver{driver: d.DB.Driver(), dsn: d.DSN}, record}), record
}

type recordedDriver struct {
	wrappedDriver

	record *Record
}

// Connect opens a connection of the driver inside.
func (d recordedDriver) Connect(context.Context) (driver.Conn, error) {
	conn, err := d.driver.Open(d.dsn)
	return recordedConn{conn, d.record}, err
}

type recordedConn struct {
	driver.Conn

	record *Record
}

// Prepare prepares a statement of the driver inside.
func (c recordedConn) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.Conn.Prepare(query)
	return recordedStmt{stmt, query, c.record}, err
}

// BeginTx begins a transaction of the driver inside.
func (c recordedConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options) //nolint:forcetypeassert // all drivers of the tests have it
}

type recordedStmt struct {
	driver.Stmt

	text   string
	record *Record
}

// ExecContext executes the statement.
func (s recordedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) //nolint:forcetypeassert // all drivers of the tests have it
}

// QueryContext notes the statement, and executes it.
func (s recordedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.record.add(s.text, args)
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) //nolint:forcetypeassert // all drivers of the tests have it
}
