package inboxstore

import (
	"context"
	"errors"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Messages may share a transaction, which removes them at its end, and another transaction may have locked the row of one of them. Then theirs
// is given up, and the database is asked which rows are locked. These messages wait, each with its key. The others
// are handled again at once, in a transaction without them.

// mostRefused is how often the others of a batch are tried at once. Beyond that, locks come as fast as transactions end, or it is
// something else that these wait for, and all that is left of the batch comes again later.
const mostRefused = 2

// lockedError is a [spool.ErrRowLocked] that knows the rows. What the database said is not in it: that is a conflict on MariaDB, and those are tried
// again at once with the same messages.
type lockedError struct{ ids map[int64]bool } // of messages

// Error returns the text of the error.
func (e *lockedError) Error() string { return "inbox: settle: " + spool.ErrRowLocked.Error() }

// Unwrap returns what kind of error it is.
func (e *lockedError) Unwrap() error { return spool.ErrRowLocked }

// seekLocked finds out which rows are locked where a transaction of messages failed with err, and that may be the reason: removing the messages, its
// last statement, was given up or was refused with a conflict, which a lock is on MariaDB.
func (s *Store) seekLocked(ctx context.Context, batch []*spool.Message, removing, err error) error {
	if !errors.Is(err, spool.ErrRowLocked) && !s.isConflict(removing) {
		return err
	}
	ids, askErr := spool.Locked(ctx, s.db, batch)
	if askErr != nil || len(ids) == 0 {
		return err
	}
	return &lockedError{ids: ids}
}

// setAside lets those of a part wait whose rows are locked, and returns the others, which are tried at once: all of them where no row is locked any
// more. It reports false where err is another one, or that has been done often enough.
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
