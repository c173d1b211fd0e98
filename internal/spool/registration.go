package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A spool is registered by the first transaction that needs it, which may be a user's and may roll back, as a whole or to a savepoint. So
// what a transaction sees of the spool is good for that one statement: [Spool.OpenIn] remembers nothing. The id is remembered when
// it is known to be committed: when a transaction of our own sees it. If a rolled back id were remembered, no forwarder would ever read the messages
// that are stored under it, or that of another outbox would: SQLite gives out the id again.

// ErrLanes is returned where a spool has another number of lanes than the configuration says.
var ErrLanes = errors.New("number of lanes differs from the stored one")

// Open finds the spool, or registers it with its number of lanes and commits that, and returns its id. It fails with
// [ErrName] where the name cannot be stored, and with [ErrLanes] where the spool is stored with another number of lanes:
// the same key would live in two of them.
func (s *Spool) Open(ctx context.Context, db *sql.DB) (int64, error) {
	id, err := s.findCommitted(ctx, db)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	err = InTx(ctx, db, s.Statements, func(tx *sql.Tx) error {
		id, err = s.OpenIn(ctx, tx)
		return err
	})
	if err != nil {
		return 0, err
	}
	s.remember(id)
	return id, nil
}

// OpenIn is [Spool.Open] in a transaction of somebody else. Unless the id is known already, it is valid in this transaction alone.
func (s *Spool) OpenIn(ctx context.Context, tx Executor) (int64, error) {
	if id := s.ID(); id != 0 {
		return id, nil
	}
	if err := CheckName(s.name); err != nil {
		return 0, s.OpenError(err)
	}
	id, lanes, err := s.Find(ctx, tx, s.Statements.FindSpool)
	if errors.Is(err, sql.ErrNoRows) {
		if _, err := tx.ExecContext(ctx, s.Statements.RegisterSpool, s.name, s.lanes); err != nil {
			return 0, fmt.Errorf("register spool %q: %w", s.name, err)
		}
		id, lanes, err = s.Find(ctx, tx, s.Statements.FindNewSpool)
	}
	if err != nil {
		return 0, s.OpenError(err)
	}
	return id, s.checkLanes(lanes)
}

// ErrElsewhere is returned for a transaction of another database.
var ErrElsewhere = errors.New("the transaction began on another *sql.DB than that of the publisher, and is not in the same database: " +
	"publish through a publisher of the transaction's database")

// CheckIn returns [ErrElsewhere] where tx, which began on another handle, does not see the spool under the id that is known. An insert with that id would go to
// whatever spool has it there. It is a statement, so ask only about another handle.
func (s *Spool) CheckIn(ctx context.Context, tx *sql.Tx) error {
	known := s.ID()
	if known == 0 {
		return nil // OpenIn asks by name
	}
	id, _, err := s.Find(ctx, tx, s.Statements.FindSpool)
	if errors.Is(err, sql.ErrNoRows) { // or the transaction is older than the spool
		id, _, err = s.Find(ctx, tx, s.Statements.FindNewSpool)
	}
	switch {
	case err == nil && id == known:
		return nil
	case err == nil || errors.Is(err, sql.ErrNoRows) || dialect.LacksTable(err):
		return fmt.Errorf("spool %q: %w", s.name, ErrElsewhere)
	default:
		return s.OpenError(err)
	}
}

// findCommitted returns the id of a spool that is registered, and remembers it, or [sql.ErrNoRows]. It does not see what others have not committed, whatever
// isolation level the server gives to a statement by itself.
func (s *Spool) findCommitted(ctx context.Context, db *sql.DB) (id int64, err error) {
	if id := s.ID(); id != 0 {
		return id, nil
	}
	if err := CheckName(s.name); err != nil {
		return 0, s.OpenError(err)
	}
	var lanes int
	if s.Statements.Isolate {
		err = InTx(ctx, db, s.Statements, func(tx *sql.Tx) (err error) {
			id, lanes, err = s.Find(ctx, tx, s.Statements.FindSpool)
			return err
		})
	} else {
		id, lanes, err = s.Find(ctx, db, s.Statements.FindSpool)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return 0, sql.ErrNoRows
	}
	if err != nil {
		return 0, s.OpenError(err)
	}
	if err := s.checkLanes(lanes); err != nil {
		return 0, err
	}
	s.remember(id)
	return id, nil
}

// Find asks for the spool by its name, with a statement that returns its id and its number of lanes.
func (s *Spool) Find(ctx context.Context, db Executor, query string) (id int64, lanes int, err error) {
	err = db.QueryRowContext(ctx, query, s.name).Scan(&id, &lanes)
	return id, lanes, err
}

func (s *Spool) checkLanes(stored int) error {
	if stored == s.lanes {
		return nil
	}
	return fmt.Errorf("spool %q is stored with %d lanes and configured with %d: configure %d, or drain the spool and change the stored number: %w",
		s.name, stored, s.lanes, stored, ErrLanes)
}

// OpenError says that the spool cannot be opened, and [ErrNoTables] where the tables are missing.
func (s *Spool) OpenError(err error) error {
	if dialect.LacksTable(err) {
		return fmt.Errorf("open spool %q: %w: %w", s.name, ErrNoTables, err)
	}
	return fmt.Errorf("open spool %q: %w", s.name, dialect.HideAddress(err))
}

// remember keeps an id that is known to be committed.
func (s *Spool) remember(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
}

// ID returns the id under which the spool is stored, or 0 while it is not known to be committed.
func (s *Spool) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Finder looks for a spool that others have registered until it is known to be committed. It serves those who store messages only in transactions of
// others, and so would have to ask for the id in each of them. It is safe for concurrent use.
type Finder struct {
	spool *Spool
	db    *sql.DB

	mu      sync.Mutex
	looking bool
	life    context.Context //nolint:containedctx // that of the finder, which Close ends
	end     context.CancelFunc
	done    sync.WaitGroup
}

// NewFinder returns a finder, which does nothing until Look.
func NewFinder(spool *Spool, db *sql.DB) *Finder {
	f := &Finder{spool: spool, db: db}
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

// Look lets the finder look for the spool in the background, unless it is found or looked for already. It waits for nothing: the caller may hold the only
// connection. An error is not reported, since the next call tries again.
func (f *Finder) Look() {
	if f.spool.ID() != 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looking || f.life.Err() != nil {
		return
	}
	f.looking = true
	f.done.Go(func() {
		ctx, cancel := context.WithTimeout(f.life, StatementTimeout)
		defer cancel()
		_, _ = f.spool.findCommitted(ctx, f.db)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.looking = false
	})
}

// Close ends the search. It can be called twice.
func (f *Finder) Close() {
	f.mu.Lock()
	f.end()
	f.mu.Unlock()
	f.done.Wait()
}

// Forget lets the next call of Open look for the spool again.
func (s *Spool) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = 0
}

// Registered describes a spool that is known to be committed under this id.
func Registered(statements *dialect.Statements, name string, lanes int, id int64) *Spool {
	s := New(statements, name, lanes)
	s.remember(id)
	return s
}
