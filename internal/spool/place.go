package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/commit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A transaction may have begun on another *sql.DB than that of the publisher or the store that
// works in it. In the same database this is correct. In another database, messages and claims would
// be written where none of its processes looks for them, or under the number of another outbox
// there. So each set of tables has a random identity, which it gets when it is created.

// ErrElsewhere is returned for a transaction of another database.
var ErrElsewhere = errors.New("the transaction began on another *sql.DB than that of the publisher or the store, and is not in the same database: " +
	"use a publisher or a store of the transaction's database, or remove the transaction from the context with postbox.ContextWithTx(ctx, nil)")

// Place is a set of tables in the database of a handle. It is safe for concurrent use.
type Place struct {
	db         *sql.DB
	statements *dialect.Statements

	mu       sync.Mutex
	identity string        // empty until it has been read
	learned  chan struct{} // closed when it has been read
}

// NewPlace returns the place of the tables in db.
func NewPlace(db *sql.DB, statements *dialect.Statements) *Place {
	return &Place{db: db, statements: statements, learned: make(chan struct{})}
}

// Check returns [ErrElsewhere] if a transaction is not in the place. For a transaction that began
// on the same handle it costs nothing, for others one statement.
func (p *Place) Check(ctx context.Context, tx *sql.Tx) error {
	if !commit.BeganElsewhere(tx, p.db) {
		return nil
	}
	var there string
	err := tx.QueryRowContext(ctx, p.statements.Identity).Scan(&there)
	if errors.Is(err, sql.ErrNoRows) || dialect.LacksTable(err) {
		return ErrElsewhere
	}
	if err != nil {
		return fmt.Errorf("identify the database of the transaction: %w", dialect.HideAddress(err))
	}
	known := p.known()
	if known == there {
		return nil
	}
	own, err := p.ask(ctx, known) // for the first time, or again because a restored database may have another identity
	if err == nil && own != there {
		err = ErrElsewhere
	}
	return err
}

// Learn reads the identity of the place, unless it is known, and waits for a connection until ctx
// ends. A store calls it before it claims and cleans up. On SQLite such a write may wait for the
// transaction that Check is to check, and holds the only connection meanwhile, so Check could not
// read the identity.
func (p *Place) Learn(ctx context.Context) {
	if p.known() == "" {
		_, _ = p.read(ctx) // Check reports the error if it matters
	}
}

func (p *Place) known() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.identity
}

// ownPatience bounds how long Check waits for a connection of its own pool.
const ownPatience = time.Second

// ask reads the identity of the place. A caller of Check may hold the only connection, so ask does
// not wait for long. If the caller knows no identity, ask also ends when another goroutine has read
// it, or had read it before the call: that one may need the only connection next, and wait with it
// for the transaction of the caller.
func (p *Place) ask(ctx context.Context, known string) (identity string, err error) {
	ctx, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	if known != "" {
		return p.read(ctx)
	}
	go func() {
		select {
		case <-p.learned:
			cancel()
		case <-ctx.Done():
		}
	}()
	identity, err = p.read(ctx)
	if learned := p.known(); err != nil && learned != "" {
		return learned, nil
	}
	return identity, err
}

// read reads the identity of the place, and remembers it.
func (p *Place) read(ctx context.Context) (identity string, err error) {
	if err := p.db.QueryRowContext(ctx, p.statements.Identity).Scan(&identity); err != nil {
		return "", Wrap("identify the database of the publisher or the store, since the transaction began on another *sql.DB", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.identity == "" && identity != "" {
		close(p.learned)
	}
	p.identity = identity
	return identity, nil
}
