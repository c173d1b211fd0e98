package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A transaction may have begun on another *sql.DB than that of the publisher or the store that is to work in it. In the same database that is all right. In another
// one, messages and claims would be written where none of its processes looks for them, or under the number that another outbox has there. So each set of tables
// has an identity, drawn by lot when it is made.

// ErrElsewhere is returned for a transaction of another database.
var ErrElsewhere = errors.New("the transaction began on another *sql.DB than that of the publisher or the store, and is not in the same database: " +
	"use a publisher or a store of the transaction's database, or take the transaction out of the context with postbox.ContextWithTx(ctx, nil)")

// Place is a set of tables in the database of a handle. It is safe for concurrent use.
type Place struct {
	db         *sql.DB
	statements *dialect.Statements

	mu       sync.Mutex
	identity string // as far as it has been asked for
}

// NewPlace returns the place of the tables in db.
func NewPlace(db *sql.DB, statements *dialect.Statements) *Place {
	return &Place{db: db, statements: statements}
}

// Check returns [ErrElsewhere] where a transaction is not in the place. For one that began on the same handle it costs nothing, for others a statement.
func (p *Place) Check(ctx context.Context, tx *sql.Tx) error {
	if !BeganElsewhere(tx, p.db) {
		return nil
	}
	var there string
	err := tx.QueryRowContext(ctx, p.statements.Identity).Scan(&there)
	if errors.Is(err, sql.ErrNoRows) || dialect.LacksTable(err) {
		return ErrElsewhere
	}
	if err != nil {
		return fmt.Errorf("ask which database the transaction is in: %w", dialect.HideAddress(err))
	}
	if p.known() == there {
		return nil
	}
	own, err := p.ask(ctx) // for the first time, or again, since a restored database may have another identity
	if err == nil && own != there {
		err = ErrElsewhere
	}
	return err
}

// Learn reads the identity of the place, unless it is known. It is called before the first write on a pool, since Check cannot ask where the only
// connection waits for the transaction that is to be checked, as on SQLite.
func (p *Place) Learn(ctx context.Context) {
	if p.known() == "" {
		_, _ = p.ask(ctx) // Check has the error, where it matters
	}
}

func (p *Place) known() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.identity
}

// ownPatience bounds how long Check waits for a connection of its own pool.
const ownPatience = time.Second

// ask reads the identity of the place.
func (p *Place) ask(ctx context.Context) (identity string, err error) {
	ctx, cancel := context.WithTimeout(ctx, ownPatience)
	defer cancel()
	if err := p.db.QueryRowContext(ctx, p.statements.Identity).Scan(&identity); err != nil {
		return "", Wrap("ask our own database which one it is, since the transaction began on another *sql.DB", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.identity = identity
	return identity, nil
}

// BeganElsewhere says whether a transaction began on another handle than db. A *sql.Tx has its handle, and does not give it to anybody, so that is looked up
// by reflection; where the field has another name or type one day, the transaction is taken to be one of db.
func BeganElsewhere(tx *sql.Tx, db *sql.DB) bool {
	field := reflect.ValueOf(tx).Elem().FieldByName("db")
	return field.IsValid() && field.Type() == reflect.TypeFor[*sql.DB]() && field.Pointer() != reflect.ValueOf(db).Pointer()
}
