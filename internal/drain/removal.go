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

// removal is the settlement of messages that are simply done. It goes on beside the drainer's reads, on a connection of
// its own where the pool has one: what is in memory is not read again, so nothing that a read finds depends on whether
// these rows are gone yet. Everything else is settled before the next read.
type removal struct {
	waiting  []*schedule.Entry
	underWay int  // messages of the one that is under way; none while there is none
	most     int  // messages that one takes, after the database refused one; 0: all
	failed   bool // the last one did, for a reason that is not about its messages
	patience patience
	ended    chan removed
	abort    context.CancelFunc // of the one under way
	running  sync.WaitGroup
	start    func(work func())
}

// removed is how a removal ended.
type removed struct {
	entries []*schedule.Entry
	left    leftover
	err     error
}

// leftover is the messages that a removal has not removed, by their ids.
type leftover struct {
	missing bool           // some were not there, or not under this token, and it is not known which
	locked  map[int64]bool // their rows are locked
	kept    map[int64]bool // the database keeps them without an error
}

// others returns the messages of which it is not known whether they were removed, where some are missing.
func (l leftover) others(entries []*schedule.Entry) []*schedule.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e *schedule.Entry) bool { return l.locked[e.Message.Ref.ID] || l.kept[e.Message.Ref.ID] })
}

func newRemoval() *removal {
	r := &removal{ended: make(chan removed, 1), patience: newPatience(LockPatience)}
	r.start = r.running.Go
	return r
}

// settleFinished settles what the workers finished, or begins to. What cannot be settled now is kept for the next step:
// until then nothing is fetched, since the database would hand out what must wait.
func (d *Drainer) settleFinished(ctx context.Context) error {
	if err := d.takeRemoved(ctx); err != nil {
		return err
	}
	d.unsettled = append(d.unsettled, d.held.take(time.Now())...)
	for _, e := range append(d.scheduler.TakeFinished(), d.takeRested()...) {
		d.revoke(e)
		if e.Outcome.Verdict == spool.Again && e.Until.IsZero() {
			d.setBack(ctx, e, e.Outcome.Err)
		}
		if e.Simple() {
			d.removal.waiting = append(d.removal.waiting, e)
		} else {
			d.unsettled = append(d.unsettled, e)
		}
	}
	if err := d.settleUnsettled(ctx); err != nil {
		return err
	}
	for len(d.removal.waiting) > 0 && d.removal.underWay == 0 {
		d.removeBeside(ctx)
		if err := d.takeRemoved(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *Drainer) removeBeside(ctx context.Context) {
	entries := d.removal.waiting
	if most := d.removal.most; most > 0 {
		entries = entries[:min(most, len(entries))]
	}
	d.removal.waiting, d.removal.underWay = d.removal.waiting[len(entries):], len(entries)
	how := d.manner(len(d.held.entries) > 0)
	d.scheduler.Await(true)
	ctx, d.removal.abort = context.WithTimeout(context.WithoutCancel(ctx), spool.StatementTimeout) //nolint:gosec // it is called at the end
	abort := d.removal.abort
	d.removal.start(func() {
		defer abort()
		left, err := d.removeEntries(ctx, entries, how)
		d.removal.ended <- removed{entries: entries, left: left, err: err}
		d.scheduler.Await(false)
	})
}

// manner is how messages that are done are removed.
type manner struct {
	keep bool // they are remembered
	seen *dialect.Seen
	lock bool // their rows are locked first, since some of them may be locked
}

func (d *Drainer) manner(lock bool) manner {
	return manner{keep: d.config.History > 0, seen: d.seen(), lock: lock}
}

// removeEntries removes messages that are done, and says which are left. The starts are taken back of those that may have to be handled again.
func (d *Drainer) removeEntries(ctx context.Context, entries []*schedule.Entry, how manner) (left leftover, err error) {
	left, err = d.remove(ctx, refsOf(entries), how)
	if err != nil || !left.missing {
		return left, err
	}
	locked, err := d.takeBackStarts(ctx, left.others(entries))
	maps.Copy(left.locked, locked)
	return left, err
}

// remove removes messages that are done, and says which are left. It uses nothing that belongs to the drainer's goroutine.
func (d *Drainer) remove(ctx context.Context, refs []dialect.Ref, how manner) (left leftover, err error) {
	left = leftover{locked: map[int64]bool{}, kept: map[int64]bool{}}
	for part := range slices.Chunk(refs, maxSettle) {
		removed, locked, err := d.removePart(ctx, part, how)
		var kept map[int64]bool
		if err == nil && int(removed)+len(locked) < len(part) {
			kept, err = d.findKept(ctx, part, locked, how.seen)
		}
		if err != nil {
			return left, fmt.Errorf("settle messages of spool %q: %w", d.spool.Name(), err)
		}
		left.missing = left.missing || int(removed)+len(locked)+len(kept) < len(part)
		maps.Copy(left.locked, locked)
		maps.Copy(left.kept, kept)
	}
	return left, nil
}

// findKept returns the ids of messages that the database has not removed, though nothing stood in the way that Postbox knows of: their rows are
// there, were not locked, and their lanes are held. A trigger of the user can do that.
func (d *Drainer) findKept(ctx context.Context, refs []dialect.Ref, locked map[int64]bool, seen *dialect.Seen) (map[int64]bool, error) {
	mine := slices.DeleteFunc(slices.Clone(refs), func(r dialect.Ref) bool { return locked[r.ID] })
	return spool.SelectIDs(ctx, d.db, d.spool.Statements.StandingWhere(d.id, mine, seen))
}

func (d *Drainer) removePart(ctx context.Context, refs []dialect.Ref, how manner) (removed int64, locked map[int64]bool, err error) {
	tooLong := false
	if !how.lock {
		var over bool
		if removed, over, tooLong, err = d.removeInTime(ctx, refs, how); over {
			return removed, nil, err
		}
	}
	locked, err = d.inUnlocked(ctx, refs, func(tx *sql.Tx, locked map[int64]bool) error {
		mine := slices.DeleteFunc(slices.Clone(refs), func(r dialect.Ref) bool { return locked[r.ID] })
		if removed = 0; len(mine) == 0 {
			return nil
		}
		removed, err = d.removeIn(ctx, tx, d.prepared.InTx, mine, how)
		return err
	})
	switch {
	case how.lock: // it may be beside a removal that uses the patience
	case len(locked) > 0:
		d.removal.patience.reset()
	case tooLong:
		d.removal.patience.inVain()
	}
	return removed, locked, err
}

// removeInTime removes messages without having looked for locks. It is not over where some of their rows may be locked, and tooLong
// says that it gave up because of the time.
func (d *Drainer) removeInTime(ctx context.Context, refs []dialect.Ref, how manner) (removed int64, over, tooLong bool, err error) {
	limited, cancel := ctx, func() {}
	if d.spool.Statements.LocksRows() {
		limited, cancel = context.WithTimeout(ctx, d.removal.patience.limit)
	}
	defer cancel()
	began := time.Now()
	removed, err = d.removeAtOnce(limited, refs, how)
	if err == nil && time.Since(began) < d.removal.patience.least {
		d.removal.patience.reset()
	}
	over = err == nil || ctx.Err() != nil || !d.heldUp(limited, err)
	return removed, over, limited.Err() != nil, err
}

// removeAtOnce removes messages without having looked for locks.
func (d *Drainer) removeAtOnce(ctx context.Context, refs []dialect.Ref, how manner) (removed int64, err error) {
	statements := d.spool.Statements
	if !how.keep && !statements.Isolate {
		return spool.Affected(d.prepared.Exec(ctx, d.db, statements.RemoveWhere(d.id, refs, how.seen)))
	}
	exec := spool.Directly
	if how.keep {
		exec = d.prepared.InTx
	}
	err = spool.Once(ctx, d.db, statements, func(tx *sql.Tx) error {
		removed, err = d.removeIn(ctx, tx, d.spool.Impatiently(exec), refs, how)
		return err
	})
	return removed, err
}

// removeIn removes messages in a transaction. If a message is only removed, or only remembered, its lane was lost in between, and
// neither is done.
func (d *Drainer) removeIn(ctx context.Context, tx *sql.Tx, exec spool.Exec, refs []dialect.Ref, how manner) (int64, error) {
	if how.keep {
		return d.spool.KeepAndRemove(ctx, tx, exec, refs, how.seen)
	}
	return spool.Affected(exec(ctx, tx, d.spool.Statements.RemoveWhere(d.id, refs, how.seen)))
}

// takeRemoved takes in a removal that has ended.
func (d *Drainer) takeRemoved(ctx context.Context) error {
	select {
	case r := <-d.removal.ended:
		return d.endRemoval(ctx, r)
	default:
		return nil
	}
}

// settleRest settles all, and waits for it while ctx lives. It does not wait for a row that is locked.
func (d *Drainer) settleRest(ctx context.Context) error {
	d.held.tryAt = time.Time{}
	for {
		if err := d.settleFinished(ctx); err != nil {
			return err
		}
		if d.removal.underWay == 0 {
			if len(d.removal.waiting) == 0 {
				return nil
			}
			continue
		}
		stop := context.AfterFunc(ctx, d.removal.abort)
		err := d.endRemoval(ctx, <-d.removal.ended)
		stop()
		if err != nil {
			return err
		}
	}
}

// endRemoval takes in a removal. One that the database refuses is tried in smaller and smaller parts, until a message that is refused
// by itself rests.
func (d *Drainer) endRemoval(ctx context.Context, r removed) error {
	d.removal.underWay, d.removal.failed = 0, r.err != nil && !d.isRefusal(r.err)
	switch {
	case r.err == nil:
		if !r.left.missing {
			d.removal.widen()
		}
		d.noteLeft(r.entries, r.left)
		d.conclude(ctx, r.entries, r.left.locked)
	case d.removal.failed:
		d.removal.waiting = slices.Concat(r.entries, d.removal.waiting)
		return r.err
	case len(r.entries) == 1:
		d.rest(ctx, r.entries[0], r.err)
	default:
		d.removal.waiting = slices.Concat(r.entries, d.removal.waiting)
		d.removal.most = max(len(r.entries)/2, 1)
	}
	return nil
}

// noteLeft notes of messages how a removal has left them.
func (d *Drainer) noteLeft(entries []*schedule.Entry, left leftover) {
	for _, e := range entries {
		e.Kept = left.kept[e.Message.Ref.ID]
	}
	if !left.missing {
		return
	}
	for _, e := range left.others(entries) { // it is not known which of them: those that are still there are read again
		d.refused(e)
	}
}

// widen lets the next removal take more messages again.
func (r *removal) widen() {
	if r.most *= 2; r.most > maxSettle {
		r.most = 0
	}
}

// waitsAgain says whether a message keeps its key closed for others.
func (d *Drainer) waitsAgain(e *schedule.Entry) bool {
	switch e.Outcome.Verdict {
	case spool.Wait, spool.Again:
		return true
	case spool.Retry, spool.Dead:
		return d.next(e) != bury
	default:
		return false
	}
}

// forget drops messages that are settled.
func (d *Drainer) forget(entries []*schedule.Entry) {
	d.overcome(entries)
	for _, e := range entries {
		ref := e.Message.Ref
		// What was put back must be found again, and so must what stood behind a message that has given its key free.
		// What stands behind one that waits again is still not to be read: it may be much. Of a key that was hidden, reads have also
		// left out what stands before the message: a transaction that committed late, or a topic that is back.
		switch {
		case e.Hidden:
			d.lanes.lower(ref.Lane, 1)
			d.pollAt = time.Time{}
		case e.Outcome.Verdict == spool.Postpone || ref.State == dialect.StateRetrying && !d.waitsAgain(e):
			d.lanes.lower(ref.Lane, ref.ID)
			d.pollAt = time.Time{}
		}
		if e.Outcome.Verdict == spool.Postpone && !e.Message.Counted {
			d.lanes.unload(e.Message) // still a suspect, if it was one
		} else {
			d.lanes.settled(e.Message)
		}
	}
	d.scheduler.Settled(entries)
}
