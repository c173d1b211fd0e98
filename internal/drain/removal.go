package drain

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// removal is the settlement of messages that are simply done. It runs concurrently with the
// drainer's reads, on a connection of its own if the pool has one. Messages in memory are not read
// again, so the result of a read does not depend on whether these rows are gone yet. All other
// outcomes are written in parts, see parts.go.
type removal struct {
	waiting  []*schedule.Entry
	underWay int // number of messages in the running removal; 0: none is running
	size     partSize
	failed   bool          // the last removal failed, for a reason other than its messages
	limit    time.Duration // of a removal that has not locked its rows
	ended    chan removed
	abort    context.CancelFunc // cancels the running removal
	running  sync.WaitGroup
	start    func(work func())
}

// mostRemoved bounds the messages of a removal, whose statements have maxSettle of them each.
const mostRemoved = 1 << 20

// removed is the result of a removal.
type removed struct {
	entries []*schedule.Entry
	left    leftover
	err     error
}

// leftover lists the messages that a removal has not removed, by their ids.
type leftover struct {
	missing   bool           // some messages were gone, or had another token, and it is not known which
	outOfTime bool           // a statement was given up, though no row was locked
	locked    map[int64]bool // rows that are locked
	kept      map[int64]bool // rows that the database keeps without an error
}

// others returns the messages that may or may not have been removed, if some are missing.
func (l leftover) others(entries []*schedule.Entry) []*schedule.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e *schedule.Entry) bool { return l.locked[e.Message.Ref.ID] || l.kept[e.Message.Ref.ID] })
}

func newRemoval() *removal {
	r := &removal{ended: make(chan removed, 1), limit: LockPatience, size: partSize{now: mostRemoved, most: mostRemoved}}
	r.start = r.running.Go
	return r
}

// removeBeside begins to remove the messages that are done, and reports whether there were any.
func (s *settler) removeBeside(ctx context.Context) bool {
	if len(s.removal.waiting) == 0 || s.removal.underWay > 0 {
		return false
	}
	entries := s.removal.waiting[:min(s.removal.size.now, len(s.removal.waiting))]
	s.removal.waiting, s.removal.underWay = s.removal.waiting[len(entries):], len(entries)
	how := s.manner(s.setbacks.anyLocked() || s.lockFirst)
	s.scheduler.Await(true)
	s.removal.abort = s.beside(ctx, func(ctx context.Context) {
		left, err := s.removeEntries(ctx, entries, how)
		s.removal.ended <- removed{entries: entries, left: left, err: err}
		s.scheduler.Await(false)
	})
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
	locked, err := s.takeBackStarts(ctx, left.others(entries))
	maps.Copy(left.locked, locked)
	return left, err
}

// remove removes messages that are done, and returns those that are left. It uses nothing that
// belongs to the drainer's goroutine.
func (s *settler) remove(ctx context.Context, refs []dialect.Ref, how manner) (left leftover, err error) {
	left = leftover{locked: map[int64]bool{}, kept: map[int64]bool{}}
	for part := range slices.Chunk(refs, maxSettle) {
		removed, locked, outOfTime, err := s.removePart(ctx, part, how)
		left.outOfTime = left.outOfTime || outOfTime
		var kept map[int64]bool
		if err == nil && int(removed)+len(locked) < len(part) {
			kept, err = s.findKept(ctx, part, locked, how.seen)
		}
		if err != nil {
			return left, fmt.Errorf("settle messages of spool %q: %w", s.spool.Name(), err)
		}
		left.missing = left.missing || int(removed)+len(locked)+len(kept) < len(part)
		maps.Copy(left.locked, locked)
		maps.Copy(left.kept, kept)
	}
	return left, nil
}

// findKept returns the ids of messages that the database has not removed for no reason that Postbox
// knows: their rows exist, were not locked, and their lanes are held. A trigger of the user can
// cause that.
func (s *settler) findKept(ctx context.Context, refs []dialect.Ref, locked map[int64]bool, seen *dialect.Seen) (map[int64]bool, error) {
	mine := slices.DeleteFunc(slices.Clone(refs), func(r dialect.Ref) bool { return locked[r.ID] })
	return spool.SelectIDs(ctx, s.db, s.spool.Statements.StandingWhere(s.id.Load(), mine, seen))
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
		limited, cancel = context.WithTimeout(ctx, s.removal.limit)
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

// takeRemoved processes the result of a removal that has ended.
func (s *settler) takeRemoved(ctx context.Context) error {
	select {
	case r := <-s.removal.ended:
		return s.endRemoval(ctx, r)
	default:
		return nil
	}
}

// endRemoval processes the result of a removal. A removal that the database refuses is tried again
// in smaller and smaller parts. A message that is refused by itself rests.
func (s *settler) endRemoval(ctx context.Context, r removed) error {
	s.removal.underWay, s.removal.failed = 0, r.err != nil && !s.dueToMessages(r.err)
	switch {
	case r.err == nil:
		if r.left.outOfTime {
			s.removal.size.halve(len(r.entries))
		} else {
			s.removal.size.worked(len(r.entries))
		}
		s.noteLeft(r.entries, r.left)
		s.conclude(ctx, r.entries, r.left.locked)
	case s.removal.failed:
		s.removeAgain(r.entries)
		return r.err
	case len(r.entries) == 1:
		s.rest(ctx, r.entries[0], r.err)
	default:
		s.removeAgain(r.entries)
		s.removal.size.halve(len(r.entries))
	}
	return nil
}

// removeAgain puts messages back whose removal failed. The drainer may have started over since the
// removal began. Then messages whose outcome is revoked are not removed.
func (s *settler) removeAgain(entries []*schedule.Entry) {
	var again []*schedule.Entry
	for _, e := range entries {
		if s.revoke(e); e.Outcome.Verdict == spool.Done {
			again = append(again, e)
		} else {
			s.unsettled = append(s.unsettled, e)
		}
	}
	s.removal.waiting = slices.Concat(again, s.removal.waiting)
}

// noteLeft marks the messages that a removal has left.
func (s *settler) noteLeft(entries []*schedule.Entry, left leftover) {
	for _, e := range entries {
		e.RowKept = left.kept[e.Message.Ref.ID]
	}
	if !left.missing {
		return
	}
	for _, e := range left.others(entries) { // it is not known which of them are gone: the others are read again
		s.noteUnchanged(e)
	}
}
