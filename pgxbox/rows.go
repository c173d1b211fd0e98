package pgxbox

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// rows reads the rows of a query, each in an operation: between two, the transaction may end.
type rows struct {
	tx    *tx
	ctx   context.Context //nolint:containedctx // pgx.Rows has methods without one; it never ends, since pgx watches the user's
	inner pgx.Rows        // nil if there are none, because of err
	err   error
}

// rows calls a function that begins to read rows.
func (t *tx) rows(ctx context.Context, begin func() (pgx.Rows, error)) (pgx.Rows, error) {
	r := &rows{tx: t, ctx: context.WithoutCancel(ctx)}
	r.err = t.do(ctx, func() (err error) {
		r.inner, err = begin()
		return err
	})
	return r, r.err
}

// do runs an operation. Its error is that of the rows, except an error of the rows themselves.
func (r *rows) do(operate func()) {
	if r.inner == nil {
		return
	}
	if err := r.tx.do(r.ctx, func() error {
		operate()
		return r.inner.Err()
	}); r.err == nil {
		r.err = err
	}
}

func (r *rows) Close() { r.do(func() { r.inner.Close() }) }

func (r *rows) Err() error { return r.err }

func (r *rows) Next() (more bool) {
	r.do(func() { more = r.inner.Next() })
	return more
}

func (r *rows) Scan(dest ...any) (err error) {
	r.do(func() { err = r.inner.Scan(dest...) })
	if err == nil {
		err = r.err
	}
	return err
}

func (r *rows) Values() (values []any, err error) {
	r.do(func() { values, err = r.inner.Values() })
	if err == nil {
		err = r.err
	}
	return values, err
}

func (r *rows) CommandTag() (tag pgconn.CommandTag) {
	if r.inner != nil {
		tag = r.inner.CommandTag()
	}
	return tag
}

func (r *rows) FieldDescriptions() []pgconn.FieldDescription {
	if r.inner == nil {
		return nil
	}
	return r.inner.FieldDescriptions()
}

func (r *rows) RawValues() [][]byte {
	if r.inner == nil {
		return nil
	}
	return r.inner.RawValues()
}

func (r *rows) Conn() *pgx.Conn { return r.tx.Conn() }

func (r *rows) TypeMap() *pgtype.Map {
	if r.inner == nil {
		return nil
	}
	return r.inner.TypeMap()
}

// row is the one row of a query.
type row struct {
	tx    *tx
	ctx   context.Context //nolint:containedctx // as that of rows
	inner pgx.Row
	err   error
}

// row calls a function that begins to read a row.
func (t *tx) row(ctx context.Context, begin func() pgx.Row) pgx.Row {
	r := &row{tx: t, ctx: context.WithoutCancel(ctx)}
	r.err = t.do(ctx, func() error {
		r.inner = begin()
		return nil
	})
	return r
}

func (r *row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	return r.tx.do(r.ctx, func() error { return r.inner.Scan(dest...) })
}

// batchResults reads the results of a batch, each in an operation.
type batchResults struct {
	tx     *tx
	ctx    context.Context //nolint:containedctx // as that of rows
	inner  pgx.BatchResults
	queued []*pgx.QueuedQuery
	next   int // the query whose result comes next
	err    error
	closed bool
}

func (b *batchResults) Exec() (tag pgconn.CommandTag, err error) {
	b.next++
	err = b.tx.do(b.ctx, func() (err error) {
		tag, err = b.inner.Exec()
		return err
	})
	return tag, err
}

func (b *batchResults) Query() (pgx.Rows, error) {
	b.next++
	return b.tx.rows(b.ctx, func() (pgx.Rows, error) { return b.inner.Query() })
}

func (b *batchResults) QueryRow() pgx.Row {
	b.next++
	return b.tx.row(b.ctx, func() pgx.Row { return b.inner.QueryRow() })
}

// Close calls the functions of the queries whose results have not been read, as pgx does.
func (b *batchResults) Close() error {
	if b.closed {
		return b.err
	}
	b.closed = true
	for b.err == nil && b.next < len(b.queued) {
		at := b.next
		if call := b.queued[at].Fn; call != nil {
			b.err = call(b)
		} else {
			_, b.err = b.Exec()
		}
		b.next = max(b.next, at+1)
	}
	if err := b.tx.do(b.ctx, func() error { return b.inner.Close() }); b.err == nil {
		b.err = err
	}
	return b.err
}

// Tx returns nil: no batch begins a transaction within another one.
func (b *batchResults) Tx() pgx.Tx { return nil }
