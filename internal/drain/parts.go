package drain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// A settlement writes the outcomes of messages: by a removal if they are done, and all others in
// parts, each in one transaction. It can be repeated after an error without changing anything
// twice, since each statement has the previous state of the message and the fencing token as its
// conditions. So an outcome that may or may not have been committed is simply written again.
//
// A part that is refused, or out of time, is halved, and the next parts are as small. A message
// that is refused by itself rests, see setback.go. So one rule covers messages that the database
// refuses, a slow network, and a database that is overloaded.
//
// One part at a time is settled, beside the reads and the removal of messages that are done. Its
// messages stay in memory, with their keys closed, until the drainer's goroutine takes the result
// between two reads. So no read can hand out one of them, or a later message of its key, whether or
// not it saw what was written.

const (
	// maxSettle bounds the number of messages that one statement settles, firstSettle that of the
	// first part, and maxHooked the number of dead messages in a part for which Buried is called.
	// The first part is small, since some servers go on with a statement that was given up, and its
	// rows stay locked until it ends.
	maxSettle, firstSettle, maxHooked = 1000, 100, 50
	// partsPerRenewal is the number of parts for which there is time between two renewals.
	partsPerRenewal = 3
	// leastPartTime is for leases that are so short that only tests have them.
	leastPartTime = 250 * time.Millisecond
)

// partSize is how many messages a part may have.
type partSize struct{ now, most int }

// halve notes that a part was refused or out of time.
func (p *partSize) halve(n int) { p.now = max(n/2, 1) }

// worked notes that a part was settled. The size grows slowly, since a part that is out of time was
// in vain.
func (p *partSize) worked(n int) {
	if n >= p.now {
		p.now = min(p.now+p.now/2+1, p.most)
	}
}

// partTime returns how long the statements of a part may take. A message by itself gets the time
// until the next renewal, since that may need the only connection.
func (c *core) partTime(n int) time.Duration {
	if n == 1 {
		return max(c.configured.Renew, LockPatience)
	}
	return max(c.configured.Renew/partsPerRenewal, leastPartTime)
}

// outOfTimeError means that a part was out of time. The database may have been about to answer, so
// this does not say that it is unavailable: the next renewal will.
type outOfTimeError struct{ error }

// Unwrap returns the error of the statement that was given up.
func (e outOfTimeError) Unwrap() error { return e.error }

// inPart runs the settlement of n messages in a transaction, whose statements have the time of a
// part, or less if the server ends them earlier. It does not count the wait for a connection, which
// may be long in a small pool.
func (c *core) inPart(ctx context.Context, n int, settle func(ctx context.Context, tx *sql.Tx) error) error {
	outOfTime := false
	err := spool.InTx(ctx, c.db, c.spool.Statements, func(tx *sql.Tx) error {
		limited, cancel := context.WithTimeout(ctx, c.partTime(n))
		defer cancel()
		err := settle(limited, tx)
		ended := c.spool.Statements.Kind.Classify(err) == dialect.Interrupted // by the server
		outOfTime = err != nil && (ended || limited.Err() != nil) && ctx.Err() == nil
		return err
	})
	if err != nil && outOfTime {
		return outOfTimeError{err}
	}
	return err
}

// inTime runs work with the time that a step has.
func (c *core) inTime(ctx context.Context, work func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	return work(ctx)
}

// way is how a message is settled.
type way int

const (
	removeDone way = iota // many at a time, see removal.go
	remove
	fail
	takeBack // its start; it has no outcome to write
	nothing
	ways
)

// partSizes are the sizes of the parts that are settled in each way.
type partSizes [ways]partSize

func newPartSizes() (p partSizes) {
	for by := range p {
		p[by] = partSize{now: firstSettle, most: maxSettle}
	}
	p[removeDone] = partSize{now: mostRemoved, most: mostRemoved}
	p[nothing].now = math.MaxInt
	return p
}

func wayOf(e *schedule.Entry) way {
	switch e.Outcome.Verdict {
	case spool.Done:
		return remove
	case spool.Retry, spool.Dead, spool.Wait, spool.Again:
		return fail
	case spool.Postpone:
		if e.Message.Started > 0 || e.Outcome.Locked {
			return takeBack
		}
		return nothing
	default:
		return nothing
	}
}

// settlePartBeside begins to settle a part, and reports whether there was one.
func (s *settler) settlePartBeside(ctx context.Context) bool {
	if len(s.part.underWay) > 0 {
		return false
	}
	s.stopBehind()
	if len(s.unsettled) == 0 {
		s.part.failed = false
		return false
	}
	r := s.nextPart()
	for _, e := range r.part {
		e.Unchanged = false
	}
	if r.by == nothing {
		s.conclude(ctx, r.part, nil)
		return true
	}
	s.begin(ctx, &s.part, r, s.manner(true))
	return true
}

// nextPart takes messages that one transaction settles: of those that have waited longest, as many
// as are settled in the same way. It has them in the order of their ids.
func (s *settler) nextPart() (r settledPart) {
	r.by = wayOf(s.unsettled[0])
	var others []*schedule.Entry
	hooked := 0
	for _, e := range s.unsettled {
		if wayOf(e) != r.by || len(r.part) == s.sizes[r.by].now || hooked == maxHooked {
			others = append(others, e)
			continue
		}
		if r.part = append(r.part, e); r.by == fail && s.hooked(s.fate(e)) {
			hooked++
		}
	}
	slices.SortStableFunc(r.part, byID)
	if r.by == fail {
		for _, e := range r.part {
			r.fates = append(r.fates, s.fate(e))
		}
	}
	s.unsettled = others
	return r
}

// stopBehind lets failed messages rest as long as an earlier failed message of their key does. If
// they were written before it, the next holder of the lane could begin with them.
func (s *settler) stopBehind() {
	first := firstFailed(s.setbacks.resting)
	if len(first) == 0 {
		return
	}
	s.unsettled = slices.DeleteFunc(s.unsettled, func(e *schedule.Entry) bool {
		before, behind := first[e.Message.KeyHash]
		if !behind || !e.Message.HasKey || wayOf(e) != fail || before.Message.Ref.ID >= e.Message.Ref.ID {
			return false
		}
		e.Until = s.setbacks.until(before)
		s.layDown(e)
		return true
	})
}

// firstFailed returns the first failed message of each key. One that is only to be read again, see
// restAndReread, is not among them.
func firstFailed(entries []*schedule.Entry) map[int64]*schedule.Entry {
	first := map[int64]*schedule.Entry{}
	for _, e := range entries {
		if e.Outcome.Verdict == spool.Again && e.Outcome.Err == nil {
			continue
		}
		m := e.Message
		if wayOf(e) == fail && m.HasKey && (first[m.KeyHash] == nil || m.Ref.ID < first[m.KeyHash].Message.Ref.ID) {
			first[m.KeyHash] = e
		}
	}
	return first
}

// settlePart settles a part. It uses nothing that belongs to the drainer's goroutine.
func (s *settler) settlePart(ctx context.Context, r *settledPart, how manner) {
	switch r.by {
	case removeDone, remove:
		var left leftover
		left, r.err = s.removeEntries(ctx, r.part, how)
		if r.locked, r.late = left.locked, left.outOfTime; left.missing {
			r.gone = unlocked(r.part, r.locked) // it is not known which of them are
		}
	case fail:
		r.err = s.settleFailed(ctx, r)
	default:
		r.locked, r.err = s.takeBackStarts(ctx, r.part)
	}
}

// endPart processes the result of a part, or of a removal of messages that are simply done. What
// the database refuses is tried again in parts, which are smaller and smaller.
func (s *settler) endPart(ctx context.Context, r settledPart) error {
	beside, size := &s.part, &s.sizes[r.by]
	if r.by == removeDone {
		beside = &s.removal
	}
	beside.underWay, beside.failed = nil, r.err != nil && !s.dueToMessages(r.err)
	switch {
	case r.err == nil:
		if r.late {
			size.halve(len(r.part))
		} else if r.by == removeDone || r.took < s.partTime(2)/2 { // a part of half as many again will be in time
			size.worked(len(r.part))
		}
		s.noteFates(r)
		s.conclude(ctx, r.part, r.locked)
	case beside.failed && r.by == removeDone:
		s.add(r.part)
		return r.err
	case beside.failed:
		s.settleAgain(r.part)
		return r.err
	case len(r.part) == 1 && r.by != removeDone:
		s.rest(ctx, r.part[0], r.err)
	default:
		s.settleAgain(r.part)
		size.halve(len(r.part))
	}
	return nil
}

// settleAgain puts messages back that could not be settled. The drainer may have started over
// since.
func (s *settler) settleAgain(part []*schedule.Entry) {
	for _, e := range part {
		s.revoke(e)
	}
	s.unsettled = slices.Concat(part, s.unsettled)
}

// noteFates notes what has been written of failed messages. A message that is no longer as it was
// read may have another process by now, or was settled by a try whose answer was lost: it is read
// again.
func (s *settler) noteFates(r settledPart) {
	for _, e := range r.gone {
		s.noteUnchanged(e)
	}
	for i, f := range r.fates {
		e := r.part[i]
		if e.Unchanged || r.locked[f.ID] {
			continue
		}
		s.logEnd(e, f)
		if f.Dead && f.State == dialect.StateRetrying { // its key goes on, and was not read behind it
			s.readFrom(f.Ref)
		}
	}
}

// settleFailed writes the outcomes of messages that failed.
func (s *settler) settleFailed(ctx context.Context, r *settledPart) error {
	defer s.settledIn(s.configured.Meter.Now())
	read := make([]dialect.AsRead, len(r.part))
	for i, f := range r.fates {
		read[i] = f.AsRead
	}
	var committed func()
	err := s.inPart(ctx, len(r.part), func(ctx context.Context, tx *sql.Tx) error {
		mine, locked, err := s.spool.LockAsRead(ctx, tx, s.id.Load(), read)
		if err != nil {
			return err
		}
		r.locked, r.gone = maps.Clone(locked), nil
		addBehind(r.locked, r.part)
		var write, hooked []dialect.Failed
		var dead []*schedule.Entry
		for i, e := range r.part {
			switch f := r.fates[i]; {
			case r.locked[f.ID]:
			case !mine[f.ID]:
				r.gone = append(r.gone, e)
			case s.hooked(f):
				hooked, dead = append(hooked, f), append(dead, e)
			default:
				write = append(write, f)
			}
		}
		scope := txscope.Hooked(ctx, tx)
		ctx, committed = scope.Context(ctx), scope.Committed
		err = s.writeFailed(ctx, tx, write)
		if err == nil && len(hooked) > 0 {
			err = s.buryHooked(ctx, tx, dead, hooked)
		}
		if err == nil {
			err = s.takeBackIn(ctx, tx, r.gone)
		}
		return err
	})
	if err == nil {
		committed()
	}
	return err
}

func (s *settler) writeFailed(ctx context.Context, tx *sql.Tx, failed []dialect.Failed) error {
	if len(failed) == 0 {
		return nil
	}
	return s.spool.SettleFailed(ctx, tx, s.id.Load(), s.configured.Process, failed)
}

// buryHooked settles dead messages for which Buried is called. It may take long, so what depends on
// the lane is written after it.
func (s *settler) buryHooked(ctx context.Context, tx *sql.Tx, entries []*schedule.Entry, failed []dialect.Failed) error {
	if err := s.callBuried(ctx, tx, entries); err != nil {
		return err
	}
	err := s.writeFailed(ctx, tx, failed)
	if errors.Is(err, sql.ErrTxDone) && ctx.Err() == nil {
		return hookError{fmt.Errorf("report that messages are dead: the hook has ended the transaction: %w", err)}
	}
	return err
}

// addBehind adds failed messages to the locked ones if an earlier message of their key is locked.
// If they were written before that message, they would wait in the database without it, and the
// next holder of the lane could begin with them. The messages are in the order of their ids.
func addBehind(locked map[int64]bool, part []*schedule.Entry) {
	if len(locked) == 0 {
		return
	}
	closed := spool.ClosedKeys{}
	for _, e := range part {
		if closed.Has(e.Message) {
			locked[e.Message.Ref.ID] = true
		}
		if locked[e.Message.Ref.ID] {
			closed.Close(e.Message)
		}
	}
}
