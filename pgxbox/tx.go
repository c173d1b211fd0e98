package pgxbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errNotYours is returned by Commit and Rollback of a transaction that Postbox has begun.
var errNotYours = errors.New("the transaction is ended by what has begun it, InTx, an inbox or a queue: to commit, return nil from its function or handler; to roll back, return an error; for a part of it, use Begin")

var errBusy = errors.New("conn busy: the transaction is in use by another goroutine, or by the call of pgx that this one is part of")

// tx is a transaction of database/sql on a connection of the pool, in the form of pgx.
type tx struct {
	standard *sql.Tx
	inner    pgx.Tx       // on the same connection
	busy     *atomic.Bool // while an operation works
}

// transactions are those that are open and have been asked for, as *tx by their *sql.Tx. All calls
// for a transaction share one, which knows whether it is in use.
var transactions sync.Map

// txOf fails for a transaction that is over, or on a handle of another kind.
func txOf(ctx context.Context, standard *sql.Tx) (*tx, error) {
	if known, found := transactions.Load(standard); found {
		return known.(*tx), nil
	}
	t := &tx{standard: standard}
	return t, t.operate(context.WithoutCancel(ctx), func(c *conn) error {
		t.inner, t.busy, c.standard = c.tx, new(atomic.Bool), standard
		transactions.Store(standard, t)
		return nil
	})
}

// do runs a function while the transaction is open, and nothing else uses its connection.
func (t *tx) do(ctx context.Context, fn func() error) error {
	if !t.busy.CompareAndSwap(false, true) {
		return errBusy
	}
	defer t.busy.Store(false)
	return t.operate(ctx, func(*conn) error { return fn() })
}

// operate runs an operation. A driver of another kind refuses it as an argument of the statement.
func (t *tx) operate(ctx context.Context, operate operation) error {
	_, err := t.standard.ExecContext(ctx, "SELECT 1", operate)
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) {
		err = fmt.Errorf("%w: %w", pgx.ErrTxClosed, err)
	}
	return err
}

// Begin sets a savepoint.
func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	var inner pgx.Tx
	err := t.do(ctx, func() (err error) {
		inner, err = t.inner.Begin(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return savepoint{&tx{standard: t.standard, inner: inner, busy: t.busy}}, nil
}

// Commit returns an error.
func (t *tx) Commit(context.Context) error { return errNotYours }

// Rollback returns an error.
func (t *tx) Rollback(context.Context) error { return errNotYours }

// savepoint is a part of a transaction, which ends it.
type savepoint struct{ *tx }

// Commit releases the savepoint.
func (s savepoint) Commit(ctx context.Context) error {
	return s.do(ctx, func() error { return s.inner.Commit(ctx) })
}

// Rollback goes back to the savepoint, also when the context has ended: else what the savepoint has
// written would be committed with the rest.
func (s savepoint) Rollback(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	return s.do(ctx, func() error { return s.inner.Rollback(ctx) })
}

// CopyFrom copies rows into a table.
func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (n int64, err error) {
	err = t.do(ctx, func() (err error) {
		n, err = t.inner.CopyFrom(ctx, table, columns, source)
		return err
	})
	return n, err
}

// LargeObjects gives access to large objects, only while the context of the transaction lives:
// nothing keeps its rollback from coming between.
func (t *tx) LargeObjects() pgx.LargeObjects { return t.inner.LargeObjects() }

// Prepare prepares a statement.
func (t *tx) Prepare(ctx context.Context, name, query string) (description *pgconn.StatementDescription, err error) {
	err = t.do(ctx, func() (err error) {
		description, err = t.inner.Prepare(ctx, name, query)
		return err
	})
	return description, err
}

// Exec executes a statement.
func (t *tx) Exec(ctx context.Context, query string, args ...any) (tag pgconn.CommandTag, err error) {
	err = t.do(ctx, func() (err error) {
		tag, err = t.inner.Exec(ctx, query, args...)
		return err
	})
	return tag, err
}

// Query executes a query. As with pgx, the rows are never nil.
func (t *tx) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	return t.rows(ctx, func() (pgx.Rows, error) { return t.inner.Query(ctx, query, args...) })
}

// QueryRow executes a query for one row.
func (t *tx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	return t.row(ctx, func() pgx.Row { return t.inner.QueryRow(ctx, query, args...) })
}

// SendBatch sends a batch.
func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	bare := *b
	bare.QueuedQueries = make([]*pgx.QueuedQuery, len(b.QueuedQueries))
	for i, queued := range b.QueuedQueries {
		without := *queued
		without.Fn = nil // it may use the transaction, so it is called outside of operations
		bare.QueuedQueries[i] = &without
	}
	results := &batchResults{tx: t, ctx: context.WithoutCancel(ctx), queued: b.QueuedQueries}
	if err := t.do(ctx, func() error {
		results.inner = t.inner.SendBatch(ctx, &bare)
		return nil
	}); err != nil {
		results.inner = pgx.FailedBatchResults(b, err)
	}
	return results
}

// Conn returns the connection. Use it as [tx.LargeObjects] says.
func (t *tx) Conn() *pgx.Conn { return t.inner.Conn() }
