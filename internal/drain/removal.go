package drain

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Messages that are simply done are removed many at a time, without looking for locks first, as
// long as none is known. Messages in memory are not read again, so the result of a read does not
// depend on whether these rows are gone yet. What such a removal cannot do is left to the parts,
// see parts.go.

// mostRemoved bounds the messages of a removal, whose statements have maxSettle of them each.
const mostRemoved = 1 << 20

// leftover lists the messages that a removal has not removed, by their ids.
type leftover struct {
	missing   bool           // some messages were gone, or had another token, and it is not known which
	outOfTime bool           // a statement was given up, though no row was locked
	locked    map[int64]bool // rows that are locked
}

// removeBeside begins to remove the messages that are done, and reports whether there were any.
func (s *settler) removeBeside(ctx context.Context) bool {
	if len(s.removal.underWay) > 0 {
		return false
	}
	if len(s.done) == 0 {
		s.removal.failed = false
		return false
	}
	r := settledPart{by: removeDone, part: s.done[:min(s.sizes[removeDone].now, len(s.done))]}
	s.done = s.done[len(r.part):]
	s.scheduler.Await(true)
	s.begin(ctx, &s.removal, r, s.manner(s.setbacks.anyLocked() || s.lockFirst))
	return true
}

// manner says how done messages are removed.
type manner struct {
	keep bool // keep them in the history
	seen *dialect.Seen
	lock bool // lock their rows first, since some of them may be locked
}

func (s *settler) manner(lock bool) manner {
	return manner{keep: s.config.History > 0, seen: s.seen(), lock: lock}
}

// removeEntries removes messages that are done, and returns those that are left. If some may have
// to be handled again, it takes back their starts.
func (s *settler) removeEntries(ctx context.Context, entries []*schedule.Entry, how manner) (left leftover, err error) {
	defer s.settledIn(s.configured.Meter.Now())
	left, err = s.remove(ctx, refsOf(entries), how)
	if err != nil || !left.missing {
		return left, err
	}
	locked, err := s.takeBackStarts(ctx, unlocked(entries, left.locked))
	maps.Copy(left.locked, locked)
	return left, err
}

// remove removes messages that are done, and returns those that are left. It uses nothing that
// belongs to the drainer's goroutine.
func (s *settler) remove(ctx context.Context, refs []dialect.Ref, how manner) (left leftover, err error) {
	left = leftover{locked: map[int64]bool{}}
	for part := range slices.Chunk(refs, maxSettle) {
		removed, locked, outOfTime, err := s.removePart(ctx, part, how)
		left.outOfTime = left.outOfTime || outOfTime
		if err != nil {
			return left, fmt.Errorf("settle messages of spool %q: %w", s.spool.Name(), err)
		}
		left.missing = left.missing || int(removed)+len(locked) < len(part)
		maps.Copy(left.locked, locked)
	}
	return left, nil
}

func (s *settler) removePart(ctx context.Context, refs []dialect.Ref, how manner) (removed int64, locked map[int64]bool, outOfTime bool, err error) {
	if !how.lock {
		var over bool
		if removed, over, outOfTime, err = s.removeInTime(ctx, refs, how); over {
			return removed, nil, false, err
		}
	}
	locked, err = s.inUnlocked(ctx, refs, func(ctx context.Context, tx *sql.Tx, locked map[int64]bool) error {
		mine := slices.DeleteFunc(slices.Clone(refs), func(r dialect.Ref) bool { return locked[r.ID] })
		if removed = 0; len(mine) == 0 {
			return nil
		}
		removed, err = s.removeIn(ctx, tx, s.prepared.InTx, mine, how)
		return err
	})
	return removed, locked, outOfTime && len(locked) == 0, err
}

// removeInTime removes messages without having looked for locks. over is false if some of their
// rows may be locked. outOfTime is true if the time limit ended the removal.
func (s *settler) removeInTime(ctx context.Context, refs []dialect.Ref, how manner) (removed int64, over, outOfTime bool, err error) {
	limited, cancel := ctx, func() {}
	if s.spool.Statements.LocksRows() {
		limited, cancel = context.WithTimeout(ctx, s.patience)
	}
	defer cancel()
	removed, err = s.removeAtOnce(limited, refs, how)
	over = err == nil || ctx.Err() != nil || !s.gaveUp(limited, err)
	return removed, over, limited.Err() != nil, err
}

// removeAtOnce removes messages without having looked for locks.
func (s *settler) removeAtOnce(ctx context.Context, refs []dialect.Ref, how manner) (removed int64, err error) {
	statements := s.spool.Statements
	if !how.keep && !statements.Isolate {
		return spool.Affected(s.prepared.Exec(ctx, s.db, statements.RemoveWhere(s.id.Load(), refs, how.seen)))
	}
	exec := spool.Directly
	if how.keep {
		exec = s.prepared.InTx
	}
	err = spool.Once(ctx, s.db, statements, func(tx *sql.Tx) error {
		removed, err = s.removeIn(ctx, tx, s.spool.Impatiently(exec), refs, how)
		return err
	})
	return removed, err
}

// removeIn removes messages in a transaction. If a message is only removed, or only added to the
// history, its lane was lost in between, and both are rolled back.
func (s *settler) removeIn(ctx context.Context, tx *sql.Tx, exec spool.Exec, refs []dialect.Ref, how manner) (int64, error) {
	if how.keep {
		return s.spool.KeepAndRemove(ctx, tx, exec, refs, how.seen)
	}
	return spool.Affected(exec(ctx, tx, s.spool.Statements.RemoveWhere(s.id.Load(), refs, how.seen)))
}
