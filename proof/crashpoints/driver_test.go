package crashpoints_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
)

// connector opens connections of a real driver, all of whose calls go through the fate of a
// process.
type connector struct {
	real driver.Driver
	dsn  string
	// prepares: the driver prepares what has arguments, as that for MySQL does, so that it is no
	// single call.
	prepares bool
	fate     *fate
}

// Connect opens a connection.
func (c *connector) Connect(context.Context) (driver.Conn, error) {
	opened := &conn{via: c}
	err := c.fate.call("CONNECT", opened, func() error {
		inner, err := c.real.Open(c.dsn)
		if err == nil {
			opened.inner = inner
			c.fate.open[opened] = struct{}{}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Driver returns the real driver.
func (c *connector) Driver() driver.Driver { return c.real }

// conn is a connection that can be cut.
type conn struct {
	via   *connector
	inner driver.Conn
	stmts []*stmt
	inTx  bool
	gone  bool
}

// upkeep is written by each process in each flow, in the same way: who works on which lanes, and
// when.
var upkeep = regexp.MustCompile(`postbox_(lanes|members|spools|chores)\b`)

// lasting says whether a call has an effect that lasts, and that belongs to the flow. The fate's
// lock is held.
func (c *conn) lasting(what string) bool {
	verb, text, _ := strings.Cut(what, " ")
	switch verb {
	case commit:
		return true
	case "EXEC", "QUERY":
		return !c.inTx && !strings.HasPrefix(text, "SELECT") && !upkeep.MatchString(text)
	default:
		return false
	}
}

// cut ends the connection at once; the server rolls back. The fate's lock is held.
func (c *conn) cut() {
	c.gone = true
	delete(c.via.fate.open, c)
	if c.inner == nil {
		return
	}
	for _, s := range c.stmts { // SQLite's connection would live as long as they do
		_ = s.inner.Close()
	}
	_ = c.inner.Close()
}

// call is one call on this connection.
func (c *conn) call(what string, do func() error) error {
	if !c.IsValid() {
		return driver.ErrBadConn
	}
	return c.via.fate.call(what, c, do)
}

// IsValid tells the pool to forget a connection that was cut.
func (c *conn) IsValid() bool {
	c.via.fate.mu.Lock()
	defer c.via.fate.mu.Unlock()
	return !c.gone
}

// Close closes the connection, which is no crash point: a server cannot tell it from a crash.
func (c *conn) Close() error {
	c.via.fate.mu.Lock()
	defer c.via.fate.mu.Unlock()
	if !c.gone {
		c.cut()
	}
	return nil
}

// ResetSession does what the driver does when the pool gives out the connection again.
func (c *conn) ResetSession(ctx context.Context) error {
	c.via.fate.mu.Lock()
	defer c.via.fate.mu.Unlock()
	if c.gone {
		return driver.ErrBadConn
	}
	if resetter, ok := c.inner.(driver.SessionResetter); ok {
		return resetter.ResetSession(ctx)
	}
	return nil
}

// CheckNamedValue converts an argument as the driver wants it.
func (c *conn) CheckNamedValue(value *driver.NamedValue) error {
	c.via.fate.mu.Lock()
	defer c.via.fate.mu.Unlock()
	if checker, ok := c.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

// Ping asks whether the server is there.
func (c *conn) Ping(ctx context.Context) error {
	return c.call("PING", func() error {
		if pinger, ok := c.inner.(driver.Pinger); ok {
			return pinger.Ping(ctx)
		}
		return nil
	})
}

// ExecContext executes a statement.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	if c.via.prepares && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	err = c.call(statement("EXEC", query), func() (err error) {
		result, err = c.inner.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

// QueryContext runs a query. All its rows are one call.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (found driver.Rows, err error) {
	if c.via.prepares && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	err = c.call(statement("QUERY", query), func() error {
		found, err = collect(c.inner.(driver.QueryerContext).QueryContext(ctx, query, args))
		return err
	})
	return found, err
}

// Prepare prepares a statement.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext prepares a statement.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	prepared := &stmt{conn: c, text: query}
	err := c.call(statement("PREPARE", query), func() (err error) {
		if prepared.inner, err = c.inner.(driver.ConnPrepareContext).PrepareContext(ctx, query); err == nil {
			c.stmts = append(c.stmts, prepared)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return prepared, nil
}

// Begin begins a transaction.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// BeginTx begins a transaction.
func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	begun := tx{conn: c}
	err := c.call("BEGIN", func() (err error) {
		begun.inner, err = c.inner.(driver.ConnBeginTx).BeginTx(ctx, options)
		c.inTx = err == nil
		return err
	})
	if err != nil {
		return nil, err
	}
	return begun, nil
}

// tx is a transaction.
type tx struct {
	conn  *conn
	inner driver.Tx
}

// commit names the call that makes the effects of a transaction permanent.
const commit = "COMMIT"

// Commit commits.
func (t tx) Commit() error { return t.end(commit, t.inner.Commit) }

// Rollback rolls back.
func (t tx) Rollback() error { return t.end("ROLLBACK", t.inner.Rollback) }

func (t tx) end(how string, do func() error) error {
	return t.conn.call(how, func() error {
		t.conn.inTx = false
		return do()
	})
}

// stmt is a prepared statement.
type stmt struct {
	conn  *conn
	inner driver.Stmt
	text  string
}

// Close frees the statement, which is nothing that a crash could come between.
func (s *stmt) Close() error {
	s.conn.via.fate.mu.Lock()
	defer s.conn.via.fate.mu.Unlock()
	if s.conn.gone {
		return nil
	}
	s.conn.stmts = slices.DeleteFunc(s.conn.stmts, func(other *stmt) bool { return other == s })
	return s.inner.Close()
}

// NumInput returns the number of arguments.
func (s *stmt) NumInput() int {
	s.conn.via.fate.mu.Lock()
	defer s.conn.via.fate.mu.Unlock()
	if s.conn.gone {
		return -1
	}
	return s.inner.NumInput()
}

// Exec is what database/sql does not call, since there is ExecContext.
func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }

// Query is what database/sql does not call, since there is QueryContext.
func (s *stmt) Query([]driver.Value) (driver.Rows, error) { return nil, driver.ErrSkip }

// ExecContext executes the statement.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (result driver.Result, err error) {
	err = s.conn.call(statement("EXEC", s.text), func() (err error) {
		result, err = s.inner.(driver.StmtExecContext).ExecContext(ctx, args)
		return err
	})
	return result, err
}

// QueryContext runs the query.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (found driver.Rows, err error) {
	err = s.conn.call(statement("QUERY", s.text), func() error {
		found, err = collect(s.inner.(driver.StmtQueryContext).QueryContext(ctx, args))
		return err
	})
	return found, err
}

// rows are rows that have all been read.
type rows struct {
	columns []string
	left    [][]driver.Value
}

// collect reads all rows, so that none is read after the process has died.
func collect(found driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	all := &rows{columns: found.Columns()}
	for {
		row := make([]driver.Value, len(all.columns))
		if err := found.Next(row); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		for i, value := range row {
			if b, ok := value.([]byte); ok {
				row[i] = slices.Clone(b) // it is the driver's
			}
		}
		all.left = append(all.left, row)
	}
}

// Columns names the columns.
func (r *rows) Columns() []string { return r.columns }

// Close does nothing.
func (r *rows) Close() error { return nil }

// Next returns the next row.
func (r *rows) Next(row []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	copy(row, r.left[0])
	r.left = r.left[1:]
	return nil
}

// mortal returns a handle of one connection whose calls go through the fate: no flow may need a
// second one (G10).
func mortal(real driver.Driver, dsn string, prepares bool, f *fate) *sql.DB {
	db := sql.OpenDB(&connector{real: real, dsn: dsn, prepares: prepares, fate: f})
	db.SetMaxOpenConns(1)
	return db
}
