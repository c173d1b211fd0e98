package pgxbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// conn is a connection of the pool, as database/sql sees it.
type conn struct {
	*stdlib.Conn
	// Inner is the same connection. Postbox asks it for the state of a transaction, and finds it
	// because it is exported and has this type.
	Inner driver.Conn

	tx       pgx.Tx  // the transaction that is open
	standard *sql.Tx // the same, as database/sql has it, once it is known
	unfit    bool    // the session cannot write
}

// operation is an argument in place of those of a statement: it is called with the connection of a
// transaction. database/sql then sees to it that the transaction is open, and that nothing else
// uses the connection: no statement, and no rollback because a context has ended.
type operation func(c *conn) error

// ExecContext executes a statement, or an operation.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if len(args) == 1 {
		if operate, ok := args[0].Value.(operation); ok {
			return driver.ResultNoRows, c.noted(operate(c))
		}
	}
	if err := c.idle(); err != nil {
		return nil, err
	}
	result, err := c.Conn.ExecContext(ctx, query, args)
	return result, c.noted(err)
}

// QueryContext executes a query.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.idle(); err != nil {
		return nil, err
	}
	rows, err := c.Conn.QueryContext(ctx, query, args)
	return rows, c.noted(err)
}

// openError says by OfHandler that a handler is at fault.
type openError struct{}

func (openError) Error() string {
	return "rows, or results of a batch, of this transaction are open: close them before the next statement, and before the function or the handler returns"
}

func (e openError) OfHandler() error { return e }

// idle returns an error that says more than that of pgx, which would come next.
func (c *conn) idle() error {
	if c.Conn.Conn().PgConn().IsBusy() {
		return openError{}
	}
	return nil
}

// Ping leaves it to database/sql to give a broken connection back. The driver of pgx would do that
// itself, while the rollback of a transaction may still come.
func (c *conn) Ping(ctx context.Context) error {
	if err := c.Conn.Conn().Ping(ctx); err != nil {
		return driver.ErrBadConn
	}
	return nil
}

// readOnly is the code of PostgreSQL's error for a write in a session that cannot write.
const readOnly = "25006"

// noted notes an error that says that the session cannot write, such as one on a server that was
// the primary.
func (c *conn) noted(err error) error {
	var said *pgconn.PgError
	c.unfit = c.unfit || errors.As(err, &said) && said.Code == readOnly
	return err
}

// IsValid says that database/sql should not pass the connection on to another caller. So each one
// goes back to the pool after each use, and all who wait for one there take turns.
func (c *conn) IsValid() bool { return false }

// Close gives the connection back to the pool. A session that cannot write ends, since the pool
// would keep it: it answers.
func (c *conn) Close() error {
	if c.unfit {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // its end is not worth waiting for
		_ = c.Conn.Conn().Close(ctx)
	}
	return c.Conn.Close()
}

// isolations are those that PostgreSQL has.
var isolations = map[sql.IsolationLevel]pgx.TxIsoLevel{
	sql.LevelDefault: "", sql.LevelReadUncommitted: pgx.ReadUncommitted, sql.LevelReadCommitted: pgx.ReadCommitted,
	sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSnapshot: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
}

// BeginTx begins a transaction as the driver of pgx does, which would keep the pgx.Tx to itself.
func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	if c.Conn.Conn().IsClosed() {
		return nil, driver.ErrBadConn
	}
	isolation, known := isolations[sql.IsolationLevel(options.Isolation)]
	if !known {
		return nil, fmt.Errorf("PostgreSQL has no isolation level %s", sql.IsolationLevel(options.Isolation))
	}
	wanted := pgx.TxOptions{IsoLevel: isolation}
	if options.ReadOnly {
		wanted.AccessMode = pgx.ReadOnly
	}
	tx, err := c.Conn.Conn().BeginTx(ctx, wanted)
	if err != nil {
		return nil, err
	}
	c.tx = tx
	return ending{ctx, c}, nil
}

// ending ends a transaction with the context with which it began, since database/sql has no other.
type ending struct {
	ctx  context.Context //nolint:containedctx // see above
	conn *conn
}

// Commit commits the transaction. While rows are open it rolls back, as pgx does.
func (e ending) Commit() error {
	if err := e.conn.idle(); err != nil {
		_ = e.Rollback()
		return err
	}
	return e.over().Commit(e.ctx)
}

// Rollback rolls it back. If its context has ended, or rows are open, it ends the connection.
func (e ending) Rollback() error { return e.over().Rollback(e.ctx) }

// over forgets the transaction, which ends now.
func (e ending) over() pgx.Tx {
	transactions.Delete(e.conn.standard)
	e.conn.standard = nil
	return e.conn.tx
}
