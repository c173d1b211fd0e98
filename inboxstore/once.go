package inboxstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/commit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

const (
	// resolveTimeout bounds the search for the outcome of a commit whose answer was lost.
	resolveTimeout = 10 * time.Second
	// resolvePause is the pause between two tries.
	resolvePause = 200 * time.Millisecond
)

// Once runs fn in a transaction whose first statement claims the key. If the key has been claimed
// and committed before, it returns false and does not run fn. It returns errors of fn as
// [HandlerError]. After an error no write of fn's transaction remains, unless fn committed it.
//
// The context that fn gets carries the transaction. It stays alive for the close timeout after ctx
// has been cancelled, but a deadline of ctx ends it. The commit does not depend on ctx. After a
// conflict with another transaction fn runs again, five times in all. Then the error is no
// [HandlerError], and no attempt should be counted. If the answer to the commit is lost, the claim
// tells whether it was committed. A transaction that fn lost or ended is fn's failure,
// [ErrTransactionLost], unless the database itself was unavailable.
//
// If ctx already carries a transaction, fn runs in a savepoint of that transaction, which its owner
// commits. If that transaction already handles the same key, because two inboxes wrap one handler,
// fn runs as a part of the outer call, which alone decides: an error is returned unchanged. If ctx
// carries a transaction of another library (see [postbox.Executor]), the error is
// [postbox.ErrNoTransaction]. A transaction that began on another *sql.DB must be in the store's
// database, or it is an error.
func (s *Store) Once(ctx context.Context, key Key, fn func(ctx context.Context) error) (fresh bool, err error) {
	return s.measured(ctx, key, nil, fn)
}

// measured runs fn once, and reports that.
func (s *Store) measured(ctx context.Context, key Key, kept *keeping, fn func(ctx context.Context) error) (fresh bool, err error) {
	if s.core.Deliveries == nil {
		return s.once(ctx, key, kept, fn)
	}
	if txscope.From(ctx).Holds(s.core.Statements.Claim, key.bytes()) { // the outer call reports
		return s.once(ctx, key, kept, fn)
	}
	reported := errPanicked
	defer func() { s.core.Deliveries.Delivered(key.Consumer, key.Topic, meter.Handled, fresh, reported) }()
	fresh, err = s.once(ctx, key, kept, fn)
	reported = err
	return fresh, err
}

// errPanicked is what is reported of a function that panics or ends its goroutine.
var errPanicked = errors.New("the function did not return")

func (s *Store) once(ctx context.Context, key Key, kept *keeping, fn func(ctx context.Context) error) (fresh bool, err error) {
	defer func() { err = dialect.HintAtPooler(err) }()
	if err := key.validate(); err != nil {
		return false, fmt.Errorf("inbox: %w", err)
	}
	if fn == nil {
		return false, errors.New("inbox: the function is nil")
	}
	s.core.Clean()
	claim := key.bytes()
	scope := txscope.From(ctx)
	if err := scope.Begin(); err != nil {
		return false, fmt.Errorf("inbox: %w", err)
	}
	defer scope.End()
	tx, joins, err := s.carried(ctx)
	if err != nil {
		return false, fmt.Errorf("inbox: %w", err)
	}
	if scope.Holds(s.core.Statements.Claim, claim) {
		err := fn(ctx)
		scope.Fail(err)
		return err == nil, err
	}
	defer func() { err = s.refused(err) }()
	s.meetHandler(ctx, key)
	if joins {
		kept.readySoon() //nolint:contextcheck // the search continues after this call
		return s.join(ctx, tx, claim, kept, fn)
	}
	if err := s.checkFit(ctx); err != nil {
		return false, err
	}
	if s.handledBefore(ctx, claim) {
		return false, nil
	}
	if err := kept.ready(ctx); err != nil {
		return false, fmt.Errorf("inbox: %w", err)
	}
	giveBack, err := s.core.Slots.Take(ctx)
	if err != nil {
		return false, fmt.Errorf("inbox: wait for a connection: %w", err)
	}
	defer giveBack()
	err = s.core.UntilNoConflict(ctx, func() (err error) {
		fresh, err = s.own(ctx, claim, kept, fn)
		return err
	})
	if s.core.IsConflict(err) {
		err = conflictError{err}
	}
	// Only a message that was handled here is remembered: a duplicate may be a dead letter, which
	// an operator may release.
	if fresh {
		s.remembered.add(claim)
	}
	return fresh, err
}

// own claims the key, runs fn and keeps the message in a transaction of the store's own. If the
// answer to the commit is lost, own finds out its outcome.
func (s *Store) own(ctx context.Context, claim []byte, kept *keeping, fn func(ctx context.Context) error) (fresh bool, err error) {
	live, end := outlive(ctx, s.config.CloseTimeout)
	defer end()
	began := time.Now()
	begin := func(ctx context.Context, tx *sql.Tx) error {
		claimed, err := s.exec(ctx, tx, s.core.Statements.Claim, claim)
		switch {
		case err != nil:
			return inbox.OutageError{Err: s.claimError(err)}
		case claimed == 0:
			return errDuplicate
		default:
			txscope.From(ctx).Hold(s.core.Statements.Claim, claim)
			return nil
		}
	}
	work := inbox.Work{Begin: begin, Handle: func(ctx context.Context, _ func() error) error { return fn(ctx) }}
	if kept != nil {
		work.Settle = func(ctx context.Context, tx *sql.Tx) error { return kept.in(ctx, tx, claim) }
	}
	err = s.core.Transact(ctx, live, work)
	if errors.Is(err, errDuplicate) {
		return false, nil
	}
	if errors.Is(err, postbox.ErrCommitUnknown) {
		err = s.resolved(live, began, claim, err)
	}
	var doubt inbox.DoubtError
	if errors.As(err, &doubt) && !s.core.Doubts.First(claim) {
		err = &HandlerError{Err: doubt.Err}
	}
	return err == nil, err
}

// claimError wraps the error of a statement that claims. Before the migrations, this statement is
// the first to meet a missing table.
func (s *Store) claimError(err error) error {
	if dialect.LacksTable(err) {
		return fmt.Errorf("inbox: claim message in %s: %w: %w", s.core.Statements.Names.Table("claims"), spool.ErrNoTables, err)
	}
	return fmt.Errorf("inbox: claim message: %w", err)
}

// errDuplicate ends the transaction of a message that was handled before.
var errDuplicate = errors.New("the message was handled before")

// resolved returns nil if the commit whose answer was lost took effect. If it did not, the handler
// may have lost the connection long before. A server that ends an idle transaction reports this
// with the next statement, which is the commit.
func (s *Store) resolved(ctx context.Context, began time.Time, claim []byte, err error) error {
	committed, resolveErr := s.resolve(ctx, claim)
	switch {
	case resolveErr != nil:
		return inbox.OutageError{Err: errors.Join(err, resolveErr)}
	case committed:
		return nil
	default:
		//nolint:errorlint // the outcome of the commit is known now
		return s.core.BlameCommit(ctx, began, fmt.Errorf("the transaction was rolled back, as its missing claim shows: %s", err))
	}
}

// resolve claims again and rolls back. The new claim waits for the lost transaction to end. It is a
// duplicate if that transaction was committed.
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
	tx, err := s.core.DB.BeginTx(ctx, &sql.TxOptions{Isolation: s.core.Statements.Isolation})
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	claimed, err := s.exec(ctx, tx, s.core.Statements.Claim, claim)
	return claimed == 0, err
}

// carried returns the transaction that ctx carries, if any. It must be in the store's database: no
// other delivery would find a claim in another database.
func (s *Store) carried(ctx context.Context) (tx *sql.Tx, joins bool, err error) {
	if tx, joins = postbox.TxFromContext(ctx); joins {
		err = s.core.Place.Check(ctx, tx)
	}
	return tx, joins, err
}

// savepoints numbers the savepoints, because inboxes may be nested.
var savepoints atomic.Int64

// join claims the key, runs fn and keeps the message in a savepoint of a transaction that the store
// did not begin.
func (s *Store) join(ctx context.Context, tx *sql.Tx, claim []byte, kept *keeping, fn func(ctx context.Context) error) (fresh bool, err error) {
	set, rollback, release := dialect.Savepoint(fmt.Sprintf("postbox_%d", savepoints.Add(1)))
	scope, err := txscope.Within(ctx)
	if err != nil {
		return false, fmt.Errorf("inbox: %w", err)
	}
	defer scope.Leave()
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
			_ = scope.Return()
			_ = back()
		}
	}()
	claimed, err := s.exec(ctx, tx, s.core.Statements.Claim, claim)
	if err != nil {
		return false, commit.WentBack(s.claimError(err), back())
	}
	if claimed > 0 {
		scope.Hold(s.core.Statements.Claim, claim)
		err := fn(scope.Context(ctx))
		outlived := scope.Return()
		if err == nil { // a function around the handler may have swallowed the error
			err = cmp.Or(scope.Failure(), outlived)
		}
		if err != nil {
			return false, s.failedWithin(err, back())
		}
		if kept != nil {
			if err := kept.in(ctx, tx, claim); err != nil {
				return false, s.unkept(err, back())
			}
		}
	}
	ended = true
	if _, err := tx.ExecContext(ctx, release); err != nil {
		err = fmt.Errorf("inbox: release savepoint: %w", err)
		if claimed > 0 && dialect.Coded(err) && s.core.Statements.Kind.Classify(err) == dialect.Other { // such as a failed statement that fn did not report
			return false, s.failedWithin(err, back())
		}
		return false, err
	}
	scope.Committed()
	return claimed > 0, nil
}

// unkept returns the error of a message that could not be kept in a savepoint. That is not the
// handler's failure, unless a statement of it had failed, or ended the transaction, and it did not
// return the error.
func (s *Store) unkept(err, backErr error) error {
	if s.core.IsConflict(err) || errors.Is(err, errNoClaim) || s.core.Statements.Kind.Aborted(err) {
		return s.failedWithin(err, backErr)
	}
	return commit.WentBack(fmt.Errorf("inbox: %w", err), backErr)
}

// failedWithin returns the error of a handler that failed in a savepoint. A conflict is not the
// handler's failure: it concerns the owner of the transaction, which can run all of it again.
func (s *Store) failedWithin(err, backErr error) error {
	if s.core.IsConflict(err) {
		return commit.WentBack(conflictError{err}, backErr)
	}
	return commit.WentBack(&HandlerError{Err: err}, backErr)
}

// outlive returns a context that is cancelled the given time after ctx is, and a function that ends
// it. A deadline of ctx is kept, because it is meant for the handler. The cancellation by a router
// that stops is not meant for the handler.
func outlive(ctx context.Context, by time.Duration) (live context.Context, end func()) {
	live, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	// A timer that is running when live has ended simply expires: it cancels a context that has
	// already ended.
	stop := context.AfterFunc(ctx, func() {
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			cancel(err)
			return
		}
		time.AfterFunc(by, func() { cancel(context.Canceled) })
	})
	return live, func() {
		stop()
		cancel(context.Canceled)
	}
}
