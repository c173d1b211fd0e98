package spool

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// Prepared keeps hot statements prepared, because a driver such as lib/pq needs two round trips for
// an unprepared statement. It is safe for concurrent use. A nil Prepared prepares nothing. That is
// for poolers in transaction mode, which may run a statement on a connection of the server on which
// it was not prepared.
type Prepared struct {
	db        *sql.DB
	watchesTx bool // the driver watches the context of a transaction

	mu         sync.Mutex
	statements map[string]*sql.Stmt
	preparing  map[string]context.CancelFunc // statements that are being prepared in the background
	closed     bool
	background sync.WaitGroup
}

// NewPrepared returns an empty set. A nil db prepares nothing.
func NewPrepared(db *sql.DB) *Prepared {
	return &Prepared{
		db: db, watchesTx: db != nil && dialect.WatchesTransactions(db),
		statements: map[string]*sql.Stmt{}, preparing: map[string]context.CancelFunc{},
	}
}

// Get returns the prepared statement, and prepares it if it is new. It takes a connection from the
// pool, so code that holds one must not call it.
func (p *Prepared) Get(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt := p.lookup(text); stmt != nil {
		return stmt, nil
	}
	stmt, err := p.db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if stmt = p.keep(text, stmt); stmt == nil {
		return nil, errClosed
	}
	return stmt, nil
}

var errClosed = errors.New("the prepared statements are closed")

// Query runs a query outside a transaction.
func (p *Prepared) Query(ctx context.Context, db *sql.DB, query dialect.Query) (*sql.Rows, error) {
	if p == nil {
		return db.QueryContext(ctx, query.Text, query.Args...)
	}
	stmt, err := p.Get(ctx, query.Text) //nolint:sqlclosecheck // it stays prepared
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, query.Args...)
}

// Exec executes a query outside a transaction.
func (p *Prepared) Exec(ctx context.Context, db *sql.DB, query dialect.Query) (sql.Result, error) {
	if p == nil {
		return db.ExecContext(ctx, query.Text, query.Args...)
	}
	stmt, err := p.Get(ctx, query.Text) //nolint:sqlclosecheck // it stays prepared
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, query.Args...)
}

// InTx executes a query in a transaction. It uses a prepared statement if the query is already
// prepared and the transaction belongs to the same *sql.DB. Otherwise it prepares the query in the
// background: the transaction may hold the only connection, so InTx must not wait for another one.
func (p *Prepared) InTx(ctx context.Context, tx *sql.Tx, query dialect.Query) (sql.Result, error) {
	if p == nil || query.Once {
		return Directly(ctx, tx, query)
	}
	stmt := p.lookup(query.Text)
	if stmt == nil {
		p.prepareLater(query.Text) //nolint:contextcheck // it continues after the caller's context has ended
		return Directly(ctx, tx, query)
	}
	watched := ctx
	if p.watchesTx && txscope.EndsWith(ctx, tx) {
		watched = context.WithoutCancel(ctx) // the end of ctx still interrupts the statement
	}
	result, err := tx.StmtContext(watched, stmt).ExecContext(watched, query.Args...) //nolint:sqlclosecheck // it ends with tx
	if err != nil && !dialect.Coded(err) {
		// The error does not come from the server. It may come from database/sql, because the
		// transaction belongs to another handle on the database, where the statement is not
		// prepared. If it comes from the connection, the next call fails as well.
		return Directly(ctx, tx, query)
	}
	return result, err
}

func (p *Prepared) prepareLater(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.db == nil || p.closed || p.preparing[text] != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), StatementTimeout)
	p.preparing[text] = cancel
	p.background.Go(func() {
		defer cancel()
		stmt, err := p.db.PrepareContext(ctx, text)
		if err == nil {
			p.keep(text, stmt)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.preparing, text)
	})
}

func (p *Prepared) lookup(text string) *sql.Stmt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.statements[text]
}

func (p *Prepared) keep(text string, stmt *sql.Stmt) *sql.Stmt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earlier := p.statements[text]; earlier != nil || p.closed {
		_ = stmt.Close() // another goroutine was faster
		return earlier
	}
	p.statements[text] = stmt
	return stmt
}

// Drop closes one statement, which no other goroutine may be about to use.
func (p *Prepared) Drop(text string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	stmt := p.statements[text]
	delete(p.statements, text)
	p.mu.Unlock()
	if stmt != nil {
		_ = stmt.Close() // the connection may be gone, and the statement with it
	}
}

// Close closes the statements, not the database. It gives up statements that are being prepared in
// the background, since they may wait for a connection that the caller holds. It can be called
// twice.
func (p *Prepared) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.closed = true
	statements := p.statements
	p.statements = map[string]*sql.Stmt{}
	for _, cancel := range p.preparing {
		cancel()
	}
	p.mu.Unlock()
	for _, stmt := range statements {
		_ = stmt.Close() // the connection may be gone, and the statement with it
	}
	p.Wait()
}

// Wait waits until the statements in the background are prepared.
func (p *Prepared) Wait() { p.background.Wait() }
