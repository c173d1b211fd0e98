package queue

import (
	"context"
	"errors"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Several messages may share a transaction, which removes them at its end. If another transaction
// has locked the row of one of them, the shared transaction is rolled back, and Postbox asks the
// database which rows are locked. These messages wait, each with its key. The others are handled
// again immediately, in a transaction without them.

// mostRefused is how often the unlocked messages of a batch are tried immediately. If that does not
// help, new locks come as fast as transactions end, or the transaction waits for something else.
// Then the rest of the batch is handled later.
const mostRefused = 2

// lockedError is a [spool.ErrRowLocked] that names the rows. It does not wrap the error of the
// database: MariaDB reports a conflict, and a conflict would run the same messages again
// immediately.
type lockedError struct{ ids map[int64]bool } // of messages

// Error returns the text of the error.
func (e *lockedError) Error() string { return "inbox: settle: " + spool.ErrRowLocked.Error() }

// Unwrap returns the kind of the error.
func (e *lockedError) Unwrap() error { return spool.ErrRowLocked }

// seekLocked returns a lockedError if a transaction failed because rows of its messages are locked,
// and err otherwise. It asks the database if the removal of the messages, which is the last
// statement, was given up or met a conflict: MariaDB reports a lock as a conflict.
func (q *queue) seekLocked(ctx context.Context, batch []*spool.Message, removing, err error) error {
	if !errors.Is(err, spool.ErrRowLocked) && !q.core.IsConflict(removing) {
		return err
	}
	ids, askErr := spool.Locked(ctx, q.core.DB, batch)
	if askErr != nil || len(ids) == 0 {
		return err
	}
	return &lockedError{ids: ids}
}

// setAside lets messages whose rows are locked wait. It returns the other messages of the part,
// which the caller tries immediately. If no row is locked any more, these are all messages of the
// part. It returns false if err has another reason, or after mostRefused times.
func (p *progress) setAside(queue *queue, part []int, err error) (rest []int, others bool) {
	if !errors.Is(err, spool.ErrRowLocked) || len(part) == 1 || p.refused == mostRefused {
		return nil, false
	}
	p.refused++
	queue.reached() // the handler has succeeded
	var locked *lockedError
	known := errors.As(err, &locked)
	for _, i := range part {
		switch {
		case known && locked.ids[p.all[i].Ref.ID]:
			p.set([]int{i}, spool.Outcome{Verdict: spool.Again, Err: err})
		case p.isFree(i):
			rest = append(rest, i)
		}
	}
	return rest, true
}
