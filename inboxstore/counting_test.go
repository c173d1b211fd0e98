package inboxstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// appends counts the statements that insert messages. Each is a commit: those outside of a transaction are one by
// themselves, and no transaction of an ingest has two.
type appends struct{ all, inTx atomic.Int64 }

// counted returns another handle on the database, and what is counted there.
func counted(t *testing.T, database *testdb.Database) (*sql.DB, *appends) {
	t.Helper()
	count := new(appends)
	db := sql.OpenDB(countingConnector{database: database.DB.Driver(), dsn: database.DSN, count: count})
	db.SetMaxOpenConns(database.DB.Stats().MaxOpenConnections)
	t.Cleanup(func() { _ = db.Close() })
	return db, count
}

type countingConnector struct {
	database driver.Driver
	dsn      string
	count    *appends
}

func (c countingConnector) Driver() driver.Driver { return c.database }

func (c countingConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.database.Open(c.dsn)
	return &countingConn{Conn: conn, count: c.count}, err
}

// countingConn offers database/sql so little that everything goes through Prepare and BeginTx.
type countingConn struct {
	driver.Conn
	count *appends
	inTx  bool
}

func (c *countingConn) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.Conn.Prepare(query)
	return countingStmt{Stmt: stmt, conn: c, appends: strings.Contains(query, "INSERT INTO postbox_messages")}, err
}

func (c *countingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	c.inTx = err == nil
	return countingTx{Tx: tx, conn: c}, err
}

type countingTx struct {
	driver.Tx
	conn *countingConn
}

func (x countingTx) Commit() error {
	x.conn.inTx = false
	return x.Tx.Commit()
}

func (x countingTx) Rollback() error {
	x.conn.inTx = false
	return x.Tx.Rollback()
}

type countingStmt struct {
	driver.Stmt
	conn    *countingConn
	appends bool
}

func (s countingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.counted()
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s countingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.counted()
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (s countingStmt) counted() {
	if !s.appends {
		return
	}
	s.conn.count.all.Add(1)
	if s.conn.inTx {
		s.conn.count.inTx.Add(1)
	}
}
