package handle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// borrowed is a connection of the pool, for one statement or one transaction.
type borrowed struct {
	driver.Conn // whose name lets package dialect find it by reflection

	lease  *sql.Conn
	of     *connector
	socket net.Conn    // of a driver that does not end a statement with its context; nil for others
	unfit  atomic.Bool // it does not go back to the pool
}

// Discard keeps the connection from going back to the pool.
func (b *borrowed) Discard() { b.unfit.Store(true) }

// Close gives the connection back.
func (b *borrowed) Close() error {
	if b.unfit.Load() {
		dialect.Discard(b.lease)
		return nil
	}
	return b.lease.Close()
}

// watch closes the connection if it still works some time after the context has ended, until stop is called.
func (b *borrowed) watch(ctx context.Context) (stop func()) {
	return watch(ctx, b.socket, b.Discard)
}

// saw remembers what an error says about the connection, and returns it.
func (b *borrowed) saw(err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrSkip):
	case errors.Is(err, driver.ErrBadConn):
		b.of.shared.broke.Store(time.Now().UnixNano())
		b.unfit.Store(true)
	case dialect.SessionUnfit(err):
		b.unfit.Store(true)
	}
	return err
}

// Ping asks the server.
func (b *borrowed) Ping(ctx context.Context) error {
	if pinger, is := b.Conn.(driver.Pinger); is {
		defer b.watch(ctx)()
		return b.saw(pinger.Ping(ctx))
	}
	return nil
}

// CheckNamedValue asks the driver.
func (b *borrowed) CheckNamedValue(value *driver.NamedValue) error {
	if checker, is := b.Conn.(driver.NamedValueChecker); is {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

// ExecContext executes a statement.
func (b *borrowed) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	execer, is := b.Conn.(driver.ExecerContext)
	if !is {
		return nil, driver.ErrSkip
	}
	defer b.watch(ctx)()
	result, err := execer.ExecContext(ctx, query, args)
	return result, b.saw(err)
}

// QueryContext executes a query.
func (b *borrowed) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	queryer, is := b.Conn.(driver.QueryerContext)
	if !is {
		return nil, driver.ErrSkip
	}
	return b.query(ctx, func() (driver.Rows, error) { return queryer.QueryContext(ctx, query, args) })
}

// query runs a query, and watches it until its rows are closed.
func (b *borrowed) query(ctx context.Context, run func() (driver.Rows, error)) (driver.Rows, error) {
	stop := b.watch(ctx)
	found, err := run()
	if err != nil {
		stop()
		return nil, b.saw(err)
	}
	return &rows{Rows: found, of: b, stop: stop}, nil
}

type rows struct {
	driver.Rows

	of   *borrowed
	stop func()
}

// Next reads the next row.
func (r *rows) Next(values []driver.Value) error {
	err := r.Rows.Next(values)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.of.saw(err)
	}
	return err
}

// Close ends the query.
func (r *rows) Close() error {
	defer r.stop()
	return r.Rows.Close()
}

// BeginTx begins a transaction with the options.
func (b *borrowed) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	stop := b.watch(ctx)
	var begun driver.Tx
	var err error
	if beginner, is := b.Conn.(driver.ConnBeginTx); is {
		begun, err = beginner.BeginTx(ctx, options)
	} else {
		begun, err = b.beginPlainly(ctx, sql.IsolationLevel(options.Isolation))
	}
	if err != nil {
		stop()
		return nil, b.saw(err)
	}
	return transaction{begun, b, stop}, nil
}

// beginPlainly begins a transaction with a driver that does not know of isolation levels. PostgreSQL sets the level in
// the transaction, the others set that of the next one.
func (b *borrowed) beginPlainly(ctx context.Context, level sql.IsolationLevel) (driver.Tx, error) {
	set := dialect.SetIsolation(level)
	inside := b.of.kind.Can().ErrorsEndTransactions
	if !inside {
		if err := b.run(ctx, set); err != nil {
			return nil, err
		}
	}
	begun, err := b.Begin() //nolint:staticcheck // the driver has nothing else
	if err == nil && inside {
		if err = b.run(ctx, set); err != nil {
			_ = begun.Rollback()
		}
	}
	return begun, err
}

// run executes a statement without arguments; an empty one does nothing.
func (b *borrowed) run(ctx context.Context, text string) error {
	if text == "" {
		return nil
	}
	_, err := b.ExecContext(ctx, text, nil)
	if !errors.Is(err, driver.ErrSkip) {
		return err
	}
	prepared, err := b.prepareOnce(ctx, text)
	if err != nil {
		return err
	}
	defer func() { _ = prepared.Close() }()
	_, err = exec(ctx, prepared, nil)
	return err
}

type transaction struct {
	driver.Tx

	of   *borrowed
	stop func()
}

// Commit commits.
func (t transaction) Commit() error {
	defer t.stop()
	return t.of.saw(t.Tx.Commit())
}

// Rollback rolls back.
func (t transaction) Rollback() error {
	defer t.stop()
	return t.of.saw(t.Tx.Rollback())
}
