package spool

import (
	"context"
	"database/sql"
	"sync"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// Prepared keeps the hot statements prepared: a driver such as lib/pq spends two round trips on one that is
// not. It is safe for concurrent use. A nil one prepares nothing. That is for poolers in transaction mode: there, a statement may run on
// a connection of the server on which it was not prepared.
type Prepared struct {
	db        *sql.DB
	watchesTx bool // whether the driver watches the context of a transaction

	mu         sync.Mutex
	statements map[string]*sql.Stmt
	preparing  map[string]context.CancelFunc // what is under way in the background
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

// Get returns the prepared statement, preparing it when it is new. It takes a connection from the pool, so it
// must not be called by code that holds one.
func (p *Prepared) Get(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt := p.lookup(text); stmt != nil {
		return stmt, nil
	}
	stmt, err := p.db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return p.keep(text, stmt), nil
}

// Query runs a query outside of a transaction.
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

// Exec executes a query outside of a transaction.
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

// InTx runs a query in a transaction, prepared if it is by now, and the transaction is one of the same *sql.DB. If not, it is prepared in
// the background: the transaction may hold the only connection, so it must not wait for another one.
func (p *Prepared) InTx(ctx context.Context, tx *sql.Tx, query dialect.Query) (sql.Result, error) {
	if p == nil || query.Once {
		return tx.ExecContext(ctx, query.Text, query.Args...)
	}
	stmt := p.lookup(query.Text)
	if stmt == nil {
		p.prepareLater(query.Text) //nolint:contextcheck // it goes on when the caller's context has ended
		return tx.ExecContext(ctx, query.Text, query.Args...)
	}
	watched := ctx
	if p.watchesTx && txscope.EndsWith(ctx, tx) {
		watched = context.WithoutCancel(ctx) // its end interrupts the statement all the same
	}
	result, err := tx.StmtContext(watched, stmt).ExecContext(watched, query.Args...) //nolint:sqlclosecheck // it ends with the transaction
	if err != nil && !dialect.Coded(err) {
		// Not the server's word. It may be database/sql's, that the transaction comes from another handle on the
		// database, where the statement is not prepared. If it is the connection's, this fails as well.
		return tx.ExecContext(ctx, query.Text, query.Args...)
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

// Drop closes one statement. No other goroutine may be about to use it.
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

// Close closes the statements, not the database. What is being prepared in the background is given up: it may wait for a connection that the
// caller holds. Close can be called twice.
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

// Wait waits until what is prepared in the background is.
func (p *Prepared) Wait() { p.background.Wait() }
