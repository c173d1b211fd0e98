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

// The first transaction that needs a spool registers it. That may be a user's transaction, and it
// may roll back, as a whole or to a savepoint. So the id that a transaction sees is valid for that
// one statement only, and [Spool.OpenIn] does not remember it. The id is remembered once it is
// known to be committed, because a transaction of Postbox's own has seen it. If an id that was
// rolled back were remembered, no forwarder would ever read the messages stored under it. Or
// another outbox's forwarder would, since SQLite issues the id again.

// Open finds the spool, or registers it and commits, and returns its id. It returns [ErrName] if
// the name cannot be stored.
func (s *Spool) Open(ctx context.Context, db *sql.DB) (id int64, err error) {
	id, err = s.FindCommitted(ctx, db)
	if !errors.Is(err, sql.ErrNoRows) {
		return id, err
	}
	asked := time.Now()
	err = InTx(ctx, db, s.Statements, func(tx *sql.Tx) error {
		id, err = s.register(ctx, tx)
		return err
	})
	if err != nil {
		return 0, err
	}
	s.remember(id, asked)
	return id, nil
}

// OpenIn is [Spool.Open] in a transaction of the user. Unless the spool is known, and was read
// lately, the result is valid only in this transaction. If the transaction cannot run queries, what
// is known is used whatever its age; the error is [ErrUnknown] if nothing is known.
func (s *Spool) OpenIn(ctx context.Context, tx Executor) (id int64, err error) {
	id = s.ID()
	if !s.Aged() {
		return id, nil
	}
	if querier, asks := tx.(Querier); asks {
		return s.register(ctx, querier)
	}
	if id == 0 {
		return 0, fmt.Errorf("spool %q: %w", s.name, ErrUnknown)
	}
	return id, nil
}

// ErrUnknown is returned if the id of a spool is not known and cannot be queried.
var ErrUnknown = errors.New("its id in the database is not known yet, and the transaction cannot read it, since it can only execute statements")

// register finds the spool in a transaction, or inserts it.
func (s *Spool) register(ctx context.Context, tx Querier) (int64, error) {
	if err := CheckName(s.name); err != nil {
		return 0, s.OpenError(err)
	}
	id, err := s.Find(ctx, tx, s.Statements.FindSpool)
	if errors.Is(err, sql.ErrNoRows) {
		if err := Run(ctx, tx, s.Statements.RegisterSpool(s.name)); err != nil {
			return 0, fmt.Errorf("register spool %q: %w", s.name, err)
		}
		id, err = s.Find(ctx, tx, cmp.Or(s.Statements.FindNewSpool, s.Statements.FindSpool))
	}
	if err != nil {
		return 0, s.OpenError(err)
	}
	return id, nil
}

// FindCommitted returns the id of a registered spool, and remembers it, or returns [sql.ErrNoRows].
// It does not see uncommitted rows, whatever isolation level the server gives to a statement
// outside a transaction.
func (s *Spool) FindCommitted(ctx context.Context, db *sql.DB) (id int64, err error) {
	if id := s.ID(); !s.Aged() {
		return id, nil
	}
	if err := CheckName(s.name); err != nil {
		return 0, s.OpenError(err)
	}
	asked := time.Now()
	if id, err = s.findCommitted(ctx, db); err != nil {
		return 0, err
	}
	s.remember(id, asked)
	return id, nil
}

// findCommitted reads the spool.
func (s *Spool) findCommitted(ctx context.Context, db *sql.DB) (id int64, err error) {
	if s.Statements.Isolate {
		err = InTx(ctx, db, s.Statements, func(tx *sql.Tx) (err error) {
			id, err = s.Find(ctx, tx, s.Statements.FindSpool)
			return err
		})
	} else {
		id, err = s.Find(ctx, db, s.Statements.FindSpool)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return 0, sql.ErrNoRows
	}
	if err != nil {
		return 0, s.OpenError(err)
	}
	return id, nil
}

// Find looks up the id of the spool by its name, with one of the statements for that.
func (s *Spool) Find(ctx context.Context, db Querier, query string) (id int64, err error) {
	rows, err := db.QueryContext(ctx, query, s.name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		return 0, cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(&id); err != nil {
		return 0, err
	}
	return id, rows.Close()
}

// OpenError wraps an error that prevents the spool from being opened. It adds [ErrNoTables] if the
// tables are missing or are of an earlier version.
func (s *Spool) OpenError(err error) error {
	if dialect.LacksTable(err) || dialect.LacksColumn(err) {
		return fmt.Errorf("open spool %q: %w: %w", s.name, ErrNoTables, err)
	}
	return fmt.Errorf("open spool %q: %w", s.name, dialect.HideAddress(err))
}

// remember stores the id of a spool that is known to be committed. It was read at this time or
// later.
func (s *Spool) remember(id int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.readAt = id, at
}

// idAge is how long a process uses the id of a spool without reading it again: a database that was
// restored may have given the spool another one.
const idAge = 10 * time.Second

// refreshAge is from when on a [Finder] reads the id again. So the transactions of a busy process
// need not read it.
const refreshAge = idAge / 2

// Aged reports whether the id is not known, or is to be read again before it is used.
func (s *Spool) Aged() bool { return s.olderThan(idAge) }

// olderThan reports whether the id is not known, or was read longer ago than this by either clock:
// the monotonic one stands still while a virtual machine is suspended.
func (s *Spool) olderThan(age time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return s.id == 0 || now.Sub(s.readAt) >= age || now.Round(0).Sub(s.readAt) >= age
}

// ID returns the id of the spool, or 0 while it is not known to be committed.
func (s *Spool) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Finder looks for a spool that other code has registered until it is known to be committed, and
// reads its id again from time to time. It serves code that stores messages in transactions of
// others, and would have to query the spool in each of them. It is safe for concurrent use.
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

// Look makes the finder look for the spool in the background, unless it was found lately or the
// search is running. It does not wait, because the caller may hold the only connection. It reports
// no errors, since a later call tries again.
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
		if id, err := f.spool.findCommitted(ctx, f.db); err == nil {
			f.spool.remember(id, asked)
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
func (s *Spool) Forget() { s.remember(0, time.Time{}) }

// Registered returns a spool that is known to be committed.
func Registered(statements *dialect.Statements, name string, id int64) *Spool {
	s := New(statements, name)
	s.remember(id, time.Now())
	return s
}
