package inboxstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

const (
	// conflictTries is how often a handler runs before a conflict with another transaction is its failure.
	conflictTries = 5
	// resolveTimeout is how long a commit of unknown outcome is looked into.
	resolveTimeout = 10 * time.Second
	// resolvePause is the pause between two looks.
	resolvePause = 200 * time.Millisecond
)

// Once runs fn in a transaction whose first statement claims the key. It returns false, and does not run fn,
// where the key has been claimed and committed before. Errors of fn come back as [HandlerError]; whatever went
// wrong, nothing of fn's transaction remains.
//
// The context that fn gets carries the transaction. It stays alive for the close timeout after ctx has been
// cancelled, and the commit does not depend on ctx. A conflict with another transaction runs fn again. Where the
// answer to the commit is lost, the claim tells whether it was committed.
//
// Where ctx carries a transaction already, fn runs in a savepoint of that one, which its owner commits.
func (s *Store) Once(ctx context.Context, key Key, fn func(ctx context.Context) error) (fresh bool, err error) {
	s.clean()
	claim := key.bytes()
	if s.remembered.has(claim) {
		return false, nil
	}
	if tx, ok := postbox.TxFromContext(ctx); ok {
		return s.join(ctx, tx, claim, fn)
	}
	for range conflictTries {
		fresh, err = s.own(ctx, claim, fn)
		if err == nil || dialect.Classify(err) != dialect.Conflict || ctx.Err() != nil {
			break
		}
	}
	// Only what was handled here: a duplicate may be a dead letter, which an operator may set free.
	if fresh {
		s.remembered.add(claim)
	}
	return fresh, err
}

// own claims and runs fn in a transaction of our own, and finds out what became of a commit whose answer was lost.
func (s *Store) own(ctx context.Context, claim []byte, fn func(ctx context.Context) error) (fresh bool, err error) {
	live, end := outlive(ctx, s.config.CloseTimeout)
	defer end()
	err = s.transact(ctx, live, func(ctx context.Context, tx *sql.Tx) error {
		claimed, err := s.exec(ctx, tx, s.statements.Claim, claim)
		switch {
		case err != nil:
			return storeError{outageError{fmt.Errorf("inbox: claim message: %w", err)}}
		case claimed == 0:
			return storeError{errDuplicate}
		default:
			return fn(ctx)
		}
	})
	if errors.Is(err, errDuplicate) {
		return false, nil
	}
	if errors.Is(err, postbox.ErrCommitUnknown) {
		err = s.resolved(live, claim, err)
	}
	return err == nil, err
}

// errDuplicate ends the transaction of a message that was handled before.
var errDuplicate = errors.New("the message was handled before")

// resolved returns nil where the commit whose answer was lost took effect.
func (s *Store) resolved(ctx context.Context, claim []byte, err error) error {
	committed, resolveErr := s.resolve(ctx, claim)
	switch {
	case resolveErr != nil:
		return outageError{errors.Join(err, resolveErr)}
	case committed:
		return nil
	default:
		return outageError{fmt.Errorf("it was rolled back, as its claim tells: %s", err)} //nolint:errorlint // its outcome is known now
	}
}

// resolve claims again and rolls back: the claim waits for the lost transaction to end, and then is a duplicate
// if that was committed.
func (s *Store) resolve(ctx context.Context, claim []byte) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTimeout)
	defer cancel()
	pause := time.NewTicker(resolvePause)
	defer pause.Stop()
	for {
		if committed, err = s.claimedBefore(ctx, claim); err == nil {
			return committed, nil
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-pause.C:
		}
	}
}

func (s *Store) claimedBefore(ctx context.Context, claim []byte) (bool, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	claimed, err := s.exec(ctx, tx, s.statements.Claim, claim)
	return claimed == 0, err
}

// savepoints numbers savepoints: an inbox may stand within another one.
var savepoints atomic.Int64

// join claims and runs fn in a savepoint of a transaction that belongs to somebody else.
func (s *Store) join(ctx context.Context, tx *sql.Tx, claim []byte, fn func(ctx context.Context) error) (fresh bool, err error) {
	set, rollback, release := dialect.Savepoint(fmt.Sprintf("postbox_%d", savepoints.Add(1)))
	if _, err := tx.ExecContext(ctx, set); err != nil {
		return false, fmt.Errorf("inbox: set savepoint: %w", err)
	}
	ended := false
	back := func() error {
		ended = true
		live := context.WithoutCancel(ctx)
		_, err := tx.ExecContext(live, rollback)
		if err == nil {
			_, err = tx.ExecContext(live, release)
		}
		return err
	}
	defer func() {
		if !ended { // fn panicked
			_ = back()
		}
	}()
	claimed, err := s.exec(ctx, tx, s.statements.Claim, claim)
	if err != nil {
		return false, errors.Join(fmt.Errorf("inbox: claim message: %w", err), back())
	}
	if claimed > 0 {
		if err := fn(ctx); err != nil {
			return false, errors.Join(&HandlerError{Err: err}, back())
		}
	}
	ended = true
	if _, err := tx.ExecContext(ctx, release); err != nil {
		return false, fmt.Errorf("inbox: release savepoint: %w", err)
	}
	return claimed > 0, nil
}
