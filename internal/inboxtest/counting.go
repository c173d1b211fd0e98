package inboxtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Counts counts the transactions that insert messages, or try to; a statement outside of one is one
// by itself. It counts too the statements that look up claims or ask whether the database is there,
// and, once it is away, the attempts to connect.
type Counts struct {
	All, InTx atomic.Int64
	Lookups   atomic.Int64
	History   atomic.Int64 // statements that keep a message, or look for a spool or its settings
	Asks      atomic.Int64
	Away      atomic.Bool
	Refused   atomic.Int64
}

// lost is the error of a connection to a database that is away.
func (a *Counts) lost() error {
	if a.Away.Load() {
		return driver.ErrBadConn
	}
	return nil
}

// Counted returns another handle on the database, and what is counted there.
func Counted(t *testing.T, database *testdb.Database) (*sql.DB, *Counts) {
	t.Helper()
	count := new(Counts)
	db := sql.OpenDB(countingConnector{database: database.DB.Driver(), dsn: database.DSN, count: count})
	db.SetMaxOpenConns(database.DB.Stats().MaxOpenConnections)
	t.Cleanup(func() { _ = db.Close() })
	return db, count
}

type countingConnector struct {
	database driver.Driver
	dsn      string
	count    *Counts
}

func (c countingConnector) Driver() driver.Driver { return c.database }

func (c countingConnector) Connect(context.Context) (driver.Conn, error) {
	if c.count.Away.Load() {
		c.count.Refused.Add(1)
		return nil, syscall.ECONNREFUSED
	}
	conn, err := c.database.Open(c.dsn)
	return &countingConn{Conn: conn, count: c.count}, err
}

// countingConn offers database/sql so little that everything goes through Prepare and BeginTx.
type countingConn struct {
	driver.Conn
	count    *Counts
	inTx     bool
	inserted bool // the transaction has inserted messages
}

func (c *countingConn) Prepare(query string) (driver.Stmt, error) {
	if err := c.count.lost(); err != nil {
		return nil, err
	}
	stmt, err := c.Conn.Prepare(query)
	return countingStmt{Stmt: stmt, conn: c, query: query}, err
}

func (c *countingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if err := c.count.lost(); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	c.inTx = err == nil
	return countingTx{Tx: tx, conn: c}, err
}

type countingTx struct {
	driver.Tx
	conn *countingConn
}

func (x countingTx) Commit() error {
	x.conn.inTx, x.conn.inserted = false, false
	return x.Tx.Commit()
}

func (x countingTx) Rollback() error {
	x.conn.inTx, x.conn.inserted = false, false
	return x.Tx.Rollback()
}

type countingStmt struct {
	driver.Stmt
	conn  *countingConn
	query string
}

func (s countingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.counted()
	if err := s.conn.count.lost(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s countingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.counted()
	if err := s.conn.count.lost(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func (s countingStmt) counted() {
	if strings.HasPrefix(s.query, "SELECT claim_key FROM postbox_claims WHERE claim_key IN") {
		s.conn.count.Lookups.Add(1)
	}
	if strings.Contains(s.query, "INTO postbox_history") || strings.Contains(s.query, "FROM postbox_spools WHERE") {
		s.conn.count.History.Add(1)
	}
	if strings.Contains(s.query, "pg_stat_bgwriter") || strings.Contains(s.query, "VARIABLE_NAME = 'Uptime'") {
		s.conn.count.Asks.Add(1)
	}
	if !strings.Contains(s.query, "INSERT INTO postbox_messages") || s.conn.inserted {
		return
	}
	s.conn.count.All.Add(1)
	if s.conn.inTx {
		s.conn.inserted = true
		s.conn.count.InTx.Add(1)
	}
}
