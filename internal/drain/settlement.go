package drain

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// maxSettle bounds the number of messages that one statement settles.
const maxSettle = 1000

// settlement writes the outcomes of messages. It can be repeated after an error without changing anything twice: each
// statement is guarded by the previous state of the message and by the fencing token. So an outcome that may or may not
// have been committed is simply written again.
type settlement struct {
	d      *Drainer
	parts  []settlementPart
	failed []*schedule.Entry // all messages that failed
	// A failed message is not written before an earlier failed message of its key. locked holds the ids of messages
	// that are not settled because their rows are locked. refused holds the keys of messages that rest, and the
	// reasons.
	locked  map[int64]bool
	refused map[int64]error
}

// settlementPart is a set of messages that one transaction settles. settle returns the ids of messages that it leaves
// out because their rows are locked.
type settlementPart struct {
	entries []*schedule.Entry
	settle  func(ctx context.Context, entries []*schedule.Entry) (locked map[int64]bool, err error)
	inOrder bool
}

// settleUnsettled settles the messages whose outcomes must be in the database before the next read. If the database
// refuses a part, its halves are tried again, until the messages that are refused by themselves rest. Later messages of
// their keys are not handed out before they are settled.
func (d *Drainer) settleUnsettled(ctx context.Context) error {
	if len(d.unsettled) == 0 {
		return nil
	}
	s := d.newSettlement(d.unsettled)
	for len(s.parts) > 0 {
		if !d.reopen && d.mayRenew() && d.renewalDue() { // each refused message costs a transaction, so this may take longer than a lease
			d.unsettled = s.left()
			if err := d.renew(ctx); err != nil {
				return err
			}
			if d.reopen { // the drainer has started over: messages that waited for their removal, or for a lock, must be settled too
				return d.settleUnsettled(ctx)
			}
		}
		if err := s.next(ctx); err != nil {
			d.unsettled = s.left()
			return err
		}
	}
	d.unsettled = nil
	return nil
}

// left returns the messages that are not settled yet.
func (s *settlement) left() []*schedule.Entry {
	var left []*schedule.Entry
	for _, part := range s.parts {
		left = append(left, part.entries...)
	}
	return left
}

// newSettlement groups messages by the way in which they are settled. So an outcome that is committed remains when
// others are refused.
func (d *Drainer) newSettlement(entries []*schedule.Entry) *settlement {
	s := &settlement{d: d, locked: map[int64]bool{}, refused: map[int64]error{}}
	var done, back, through []*schedule.Entry // back: messages without an outcome to write
	slices.SortStableFunc(entries, byID)
	for _, e := range entries {
		e.Refused, e.Kept = false, false
		switch e.Outcome.Verdict {
		case spool.Done:
			done = append(done, e)
		case spool.Retry, spool.Dead, spool.Wait, spool.Again:
			s.failed = append(s.failed, e)
		case spool.Postpone:
			back = append(back, e)
		case spool.Settled:
			through = append(through, e)
		}
	}
	s.add(settlementPart{entries: done, settle: d.settleDone})
	s.add(settlementPart{entries: s.failed, settle: s.settleFailed, inOrder: true})
	s.add(settlementPart{entries: back, settle: d.takeBackStarts})
	s.add(settlementPart{entries: through, settle: func(context.Context, []*schedule.Entry) (map[int64]bool, error) { return nil, nil }})
	return s
}

// add adds messages that are settled in the same way.
func (s *settlement) add(all settlementPart) {
	for entries := range slices.Chunk(all.entries, maxSettle) {
		s.parts = append(s.parts, settlementPart{entries: entries, settle: all.settle, inOrder: all.inOrder})
	}
}

// next settles the first part, or splits it in two.
func (s *settlement) next(ctx context.Context) error {
	part := s.parts[0]
	if part.inOrder {
		part.entries = s.restBehind(ctx, part.entries)
		s.parts[0] = part
	}
	locked, err := part.settle(ctx, part.entries)
	switch n := len(part.entries); {
	case err == nil:
		maps.Copy(s.locked, locked)
		s.noteKept(part.entries)
		s.d.conclude(ctx, part.entries, locked)
	case !s.d.isRefusal(err):
		return err
	case n == 1:
		if m := part.entries[0].Message; m.HasKey {
			s.refused[m.KeyHash] = err
		}
		s.d.rest(ctx, part.entries[0], err)
	default:
		first, second := part, part
		first.entries, second.entries = part.entries[:n/2], part.entries[n/2:]
		s.parts = slices.Replace(s.parts, 0, 1, first, second)
		return nil
	}
	s.parts = s.parts[1:]
	return nil
}

// noteKept records the keys of messages that will rest because the database keeps them unchanged.
func (s *settlement) noteKept(entries []*schedule.Entry) {
	for _, e := range entries {
		if e.Kept && e.Message.HasKey {
			s.refused[e.Message.KeyHash] = errNotRemoved
		}
	}
}

// restBehind lets messages rest if an earlier message of their key rests. It returns the others.
func (s *settlement) restBehind(ctx context.Context, entries []*schedule.Entry) (others []*schedule.Entry) {
	for _, e := range entries {
		if err := s.refused[e.Message.KeyHash]; e.Message.HasKey && err != nil {
			s.d.rest(ctx, e, err)
		} else {
			others = append(others, e)
		}
	}
	return others
}

// settleDone removes messages that are done.
func (d *Drainer) settleDone(ctx context.Context, entries []*schedule.Entry) (locked map[int64]bool, err error) {
	left, err := d.removeEntries(ctx, entries, d.manner(true))
	if err == nil {
		d.noteLeft(entries, left)
	}
	return left.locked, err
}

// settleFailed writes the outcomes of messages that failed.
func (s *settlement) settleFailed(ctx context.Context, entries []*schedule.Entry) (locked map[int64]bool, err error) {
	if len(entries) == 0 {
		return nil, nil
	}
	d, committed := s.d, func() {}
	defer d.settledIn(d.configured.Meter.Now())
	_, err = d.inUnlocked(ctx, refsOf(entries), func(tx *sql.Tx, found map[int64]bool) error {
		hooked, done := postbox.ContextWithHooks(ctx, tx)
		committed = done
		locked = maps.Clone(s.locked)
		maps.Copy(locked, found)
		addBehind(locked, s.failed)
		return d.settleFailures(hooked, tx, unlocked(entries, locked))
	})
	if err != nil {
		return nil, fmt.Errorf("settle failed messages of spool %q: %w", d.spool.Name(), err)
	}
	committed()
	return locked, nil
}
