package spool

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// The first transaction that needs a spool registers it. That may be a user's transaction, and it may roll back, as a
// whole or to a savepoint. So the id that a transaction sees is valid for that one statement only, and [Spool.OpenIn]
// does not remember it. The id is remembered once it is known to be committed, because a transaction of Postbox's own
// has seen it. If an id that was rolled back were remembered, no forwarder would ever read the messages stored under
// it. Or another outbox's forwarder would, since SQLite issues the id again.

// Open finds the spool, or registers it with the configured number of lanes and commits. It returns [ErrName] if the name
// cannot be stored. The stored number of lanes counts, whatever is configured.
func (s *Spool) Open(ctx context.Context, db *sql.DB) (int64, error) {
	found, err := s.open(ctx, db)
	return found.ID, err
}

func (s *Spool) open(ctx context.Context, db *sql.DB) (Found, error) {
	found, err := s.lookUp(ctx, db)
	if !errors.Is(err, sql.ErrNoRows) {
		return found, err
	}
	asked := time.Now()
	err = InTx(ctx, db, s.Statements, func(tx *sql.Tx) error {
		found, err = s.register(ctx, tx)
		return err
	})
	if err != nil {
		return Found{}, err
	}
	s.remember(found, asked)
	return found, nil
}

// OpenIn is [Spool.Open] in a transaction of the user. Unless the spool is known, and was read lately, the result is valid only
// in this transaction. If the transaction cannot run queries, what is known is used whatever its age; the error is [ErrUnknown] if
// nothing is known.
func (s *Spool) OpenIn(ctx context.Context, tx Executor) (Found, error) {
	found := s.known()
	if !s.Aged() {
		return found, nil
	}
	if querier, asks := tx.(Querier); asks {
		return s.register(ctx, querier)
	}
	if found.ID == 0 {
		return Found{}, fmt.Errorf("spool %q: %w", s.name, ErrUnknown)
	}
	return found, nil
}

// ErrUnknown is returned if the id of a spool is not known and cannot be queried.
var ErrUnknown = errors.New("its id in the database is not known yet, and the transaction cannot read it, since it can only execute statements")

// register finds the spool in a transaction, or inserts it.
func (s *Spool) register(ctx context.Context, tx Querier) (Found, error) {
	if err := CheckName(s.name); err != nil {
		return Found{}, s.OpenError(err)
	}
	found, err := s.Find(ctx, tx, s.Statements.FindSpool)
	if errors.Is(err, sql.ErrNoRows) {
		if err := Run(ctx, tx, s.Statements.RegisterSpool(s.name, s.lanes)); err != nil {
			return Found{}, fmt.Errorf("register spool %q: %w", s.name, err)
		}
		found, err = s.Find(ctx, tx, s.Statements.FindNewSpool)
	}
	if err != nil {
		return Found{}, s.OpenError(err)
	}
	return found, nil
}

// FindCommitted returns the id of a registered spool, and remembers it, or returns [sql.ErrNoRows]. It does not see
// uncommitted rows, whatever isolation level the server gives to a statement outside a transaction.
func (s *Spool) FindCommitted(ctx context.Context, db *sql.DB) (id int64, err error) {
	found, err := s.lookUp(ctx, db)
	return found.ID, err
}

func (s *Spool) lookUp(ctx context.Context, db *sql.DB) (Found, error) {
	if found := s.known(); !s.Aged() {
		return found, nil
	}
	if err := CheckName(s.name); err != nil {
		return Found{}, s.OpenError(err)
	}
	asked := time.Now()
	found, err := s.findCommitted(ctx, db)
	if err != nil {
		return Found{}, err
	}
	s.remember(found, asked)
	return found, nil
}

// findCommitted reads the spool.
func (s *Spool) findCommitted(ctx context.Context, db *sql.DB) (found Found, err error) {
	if s.Statements.Isolate {
		err = InTx(ctx, db, s.Statements, func(tx *sql.Tx) (err error) {
			found, err = s.Find(ctx, tx, s.Statements.FindSpool)
			return err
		})
	} else {
		found, err = s.Find(ctx, db, s.Statements.FindSpool)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return Found{}, sql.ErrNoRows
	}
	if err != nil {
		return Found{}, s.OpenError(err)
	}
	return found, nil
}

// Found is the stored form of a spool.
type Found struct {
	ID int64
	dialect.Layout
}

// Find looks up the spool by its name, with one of the statements for that.
func (s *Spool) Find(ctx context.Context, db Querier, query string) (found Found, err error) {
	rows, err := db.QueryContext(ctx, query, s.name)
	if err != nil {
		return Found{}, err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		return Found{}, cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(&found.ID, &found.First, &found.Lanes); err != nil {
		return Found{}, err
	}
	return found, rows.Close()
}

// OpenError wraps an error that prevents the spool from being opened. It adds [ErrNoTables] if the tables are missing
// or are of an earlier version.
func (s *Spool) OpenError(err error) error {
	if dialect.LacksTable(err) || dialect.LacksColumn(err) {
		return fmt.Errorf("open spool %q: %w: %w", s.name, ErrNoTables, err)
	}
	return fmt.Errorf("open spool %q: %w", s.name, dialect.HideAddress(err))
}

// remember stores a spool that is known to be committed. It was read at this time or later.
func (s *Spool) remember(found Found, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored, s.readAt = found, at
}

// Adopt takes in another layout of the spool, which is known to be committed.
func (s *Spool) Adopt(layout dialect.Layout) {
	found := s.known()
	found.Layout = layout
	s.remember(found, time.Now())
}

// LayoutAge is how long a process that writes messages uses a layout without reading it again. Messages under an old layout are moved before they are
// handled. But a database that has gone back to a state before a change gives out the numbers of the lost lanes once more. So a change waits for this
// long: then no process uses a layout that was lost before, but in a transaction that has written with it and is still open.
const LayoutAge = 10 * time.Second

// Aged reports whether the spool is not known, or its layout is to be read again before it is used.
func (s *Spool) Aged() bool { return s.olderThan(LayoutAge) }

// refreshAge is from when on a [Finder] reads a layout again. A busy process finds it before [LayoutAge] is over, and its transactions need not read it.
const refreshAge = LayoutAge / 2

// olderThan reports whether the spool is not known, or was read longer ago than this by either clock: the monotonic one stands still
// while a virtual machine is suspended.
func (s *Spool) olderThan(age time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return s.stored.ID == 0 || now.Sub(s.readAt) >= age || now.Round(0).Sub(s.readAt) >= age
}

// known returns the remembered spool.
func (s *Spool) known() Found {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored
}

// ID returns the id of the spool, or 0 while it is not known to be committed.
func (s *Spool) ID() int64 { return s.known().ID }

// Finder looks for a spool that other code has registered until it is known to be committed, and reads its layout again
// from time to time. It serves code that stores messages in transactions of others, and would have to query the spool in each
// of them. It is safe for concurrent use.
type Finder struct {
	spool *Spool
	db    *sql.DB

	mu      sync.Mutex
	looking bool
	life    context.Context //nolint:containedctx // the life of the finder, which Close ends
	end     context.CancelFunc
	done    sync.WaitGroup
}

// NewFinder returns a finder, which does nothing before Look.
func NewFinder(spool *Spool, db *sql.DB) *Finder {
	f := &Finder{spool: spool, db: db}
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

// Look makes the finder look for the spool in the background, unless it was found lately or the search is running. It does
// not wait, because the caller may hold the only connection. It reports no errors, since a later call tries again.
func (f *Finder) Look() {
	if !f.spool.olderThan(refreshAge) {
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
		asked := time.Now()
		if found, err := f.spool.findCommitted(ctx, f.db); err == nil {
			f.spool.remember(found, asked)
		}
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

// Forget makes the next call of Open look for the spool again.
func (s *Spool) Forget() { s.remember(Found{}, time.Time{}) }

// Registered returns a spool that is known to be committed.
func Registered(statements *dialect.Statements, name string, found Found) *Spool {
	s := New(statements, name, found.Lanes)
	s.remember(found, time.Now())
	return s
}
