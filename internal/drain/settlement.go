package drain

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A settlement writes the outcomes of messages, many of them in one transaction. It can be repeated
// after an error without changing anything twice: each statement is guarded by the previous state
// of the message and by the fencing token. So an outcome that may or may not have been committed is
// simply written again.
//
// A part that is refused, or out of time, is halved, and the next parts are as small. A message
// that is refused by itself rests, see setback.go. So one rule covers messages that the database
// refuses, a slow network, and a database that is overloaded. Between two parts the leases are
// renewed when that is due.

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
// until the next renewal. Removals and workers ask it, too, so it does not read d.config.
func (d *Drainer) partTime(n int) time.Duration {
	if n == 1 {
		return max(d.configured.Renew, LockPatience)
	}
	return max(d.configured.Renew/partsPerRenewal, leastPartTime)
}

// lateError means that a part was out of time. The database may have been about to answer, so this
// does not say that it is unavailable: the next renewal will.
type lateError struct{ error }

// Unwrap returns the error of the statement that was given up.
func (e lateError) Unwrap() error { return e.error }

// inPart runs the settlement of n messages in a transaction, whose statements have the time of a
// part, or less if the server ends them earlier. It does not count the wait for a connection, which
// may be long in a small pool.
func (d *Drainer) inPart(ctx context.Context, n int, settle func(ctx context.Context, tx *sql.Tx) error) error {
	late := false
	err := spool.InTx(ctx, d.db, d.spool.Statements, func(tx *sql.Tx) error {
		limited, cancel := context.WithTimeout(ctx, d.partTime(n))
		defer cancel()
		err := settle(limited, tx)
		ended := d.spool.Statements.Kind.Classify(err) == dialect.Interrupted // by the server
		late = err != nil && (ended || limited.Err() != nil) && ctx.Err() == nil
		return err
	})
	if err != nil && late {
		return lateError{err}
	}
	return err
}

// settleUnsettled settles the messages whose outcomes must be in the database before the next read.
func (d *Drainer) settleUnsettled(ctx context.Context) error {
	stopped := map[int64]error{}
	for len(d.unsettled) > 0 {
		if !d.reopen && d.mayRenew() && d.renewalDue() {
			if err := d.inTime(ctx, d.renew); err != nil {
				return err
			}
		}
		if err := d.inTime(ctx, func(ctx context.Context) error { return d.settlePart(ctx, stopped) }); err != nil {
			return err
		}
	}
	return nil
}

// inTime runs work with the time that a step has. Settling takes as many of these as it needs.
func (d *Drainer) inTime(ctx context.Context, work func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	return work(ctx)
}

// way is how a message is settled.
type way int

const (
	remove way = iota
	fail
	takeBack // its start; it has no outcome to write
	nothing
	ways
)

// portions are the sizes of the parts that are settled in each way.
type portions [ways]partSize

func newPortions() (p portions) {
	for by := range p {
		p[by] = partSize{now: firstSettle, most: maxSettle}
	}
	return p
}

func wayOf(e *schedule.Entry) way {
	switch e.Outcome.Verdict {
	case spool.Done:
		return remove
	case spool.Retry, spool.Dead, spool.Wait, spool.Again:
		return fail
	case spool.Postpone:
		return takeBack
	default:
		return nothing
	}
}

// nextPart returns messages that one transaction settles, in the order of their ids.
func (d *Drainer) nextPart() (part []*schedule.Entry, by way) {
	slices.SortStableFunc(d.unsettled, func(a, b *schedule.Entry) int { return cmp.Or(cmp.Compare(wayOf(a), wayOf(b)), byID(a, b)) })
	by = wayOf(d.unsettled[0])
	hooked := 0
	for i, e := range d.unsettled {
		if by == fail && d.hasHook(e) {
			hooked++
		}
		if i == d.portions[by].now || wayOf(e) != by || hooked > maxHooked {
			return d.unsettled[:i:i], by
		}
	}
	return slices.Clone(d.unsettled), by
}

// settlePart settles a part, or makes the next parts smaller. A failed message is not written
// before an earlier failed message of its key: stopped holds the keys of those that could not be
// settled, with the reason.
func (d *Drainer) settlePart(ctx context.Context, stopped map[int64]error) error {
	part, by := d.nextPart()
	if by == fail {
		if i := slices.IndexFunc(part, func(e *schedule.Entry) bool { return e.Message.HasKey && stopped[e.Message.KeyHash] != nil }); i >= 0 {
			behind := part[i]
			d.unsettled = slices.Delete(d.unsettled, i, i+1)
			d.stopBehind(ctx, behind, stopped[behind.Message.KeyHash])
			return nil
		}
	}
	for _, e := range part {
		e.Refused, e.Kept = false, false
	}
	began := time.Now()
	locked, err := d.settleBy(ctx, by, part)
	switch {
	case err == nil:
		if time.Since(began) < d.partTime(2)/2 { // a part of half as many again will be in time
			d.portions[by].worked(len(part))
		}
		d.unsettled = d.unsettled[len(part):]
		if by == fail {
			stop(stopped, part, locked)
		}
		d.conclude(ctx, part, locked)
	case !d.isRefusal(err):
		return err
	case len(part) == 1:
		d.unsettled = d.unsettled[1:]
		if m := part[0].Message; by == fail && m.HasKey {
			stopped[m.KeyHash] = err
		}
		d.rest(ctx, part[0], err)
	default:
		d.portions[by].halve(len(part))
	}
	return nil
}

// stop closes the keys of failed messages that are locked.
func stop(stopped map[int64]error, part []*schedule.Entry, locked map[int64]bool) {
	for _, e := range part {
		if e.Message.HasKey && locked[e.Message.Ref.ID] {
			stopped[e.Message.KeyHash] = spool.ErrRowLocked
		}
	}
}

// stopBehind does with a failed message what became of an earlier one of its key.
func (d *Drainer) stopBehind(ctx context.Context, e *schedule.Entry, reason error) {
	if errors.Is(reason, spool.ErrRowLocked) {
		d.hold(e)
	} else {
		d.rest(ctx, e, reason)
	}
}

// settleBy settles messages, and returns the ids of those that it leaves out because their rows are
// locked.
func (d *Drainer) settleBy(ctx context.Context, by way, part []*schedule.Entry) (locked map[int64]bool, err error) {
	switch by {
	case remove:
		left, err := d.removeEntries(ctx, part, d.manner(true))
		if err == nil {
			d.noteLeft(part, left)
		}
		return left.locked, err
	case fail:
		return d.settleFailed(ctx, part)
	case takeBack:
		return d.takeBackStarts(ctx, part)
	default:
		return nil, nil
	}
}

// settleFailed writes the outcomes of messages that failed. A message that is no longer as it was
// read may have another process by now, or was settled by a try whose answer was lost: it is read
// again.
func (d *Drainer) settleFailed(ctx context.Context, part []*schedule.Entry) (locked map[int64]bool, err error) {
	defer d.settledIn(d.configured.Meter.Now())
	fates, read := make([]dialect.Failed, len(part)), make([]dialect.AsRead, len(part))
	for i, e := range part {
		fates[i] = d.fate(e)
		read[i] = fates[i].AsRead
	}
	var settled, gone []*schedule.Entry
	var committed func()
	err = d.inPart(ctx, len(part), func(ctx context.Context, tx *sql.Tx) error {
		var mine map[int64]bool
		if mine, locked, err = d.spool.LockAsRead(ctx, tx, d.id, read); err != nil {
			return err
		}
		locked = maps.Clone(locked)
		addBehind(locked, part)
		settled, gone = nil, nil
		var write, hooked []dialect.Failed
		for i, e := range part {
			switch {
			case locked[e.Message.Ref.ID]:
				continue
			case !mine[e.Message.Ref.ID]:
				gone = append(gone, e)
				continue
			case d.hasHook(e):
				hooked = append(hooked, fates[i])
			default:
				write = append(write, fates[i])
			}
			settled = append(settled, e)
		}
		ctx, committed = postbox.ContextWithHooks(ctx, tx)
		err := d.writeFailed(ctx, tx, write)
		if err == nil && len(hooked) > 0 {
			err = d.buryHooked(ctx, tx, settled, hooked)
		}
		if err == nil {
			err = d.takeBackIn(ctx, tx, gone)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	committed()
	for _, e := range gone {
		d.refused(e)
	}
	d.logEnds(settled)
	return locked, nil
}

func (d *Drainer) writeFailed(ctx context.Context, tx *sql.Tx, failed []dialect.Failed) error {
	if len(failed) == 0 {
		return nil
	}
	return d.spool.SettleFailed(ctx, tx, d.id, d.config.Process, failed)
}

// buryHooked settles dead messages for which Buried is called. It may take long, so what depends on
// the lane is written after it.
func (d *Drainer) buryHooked(ctx context.Context, tx *sql.Tx, entries []*schedule.Entry, failed []dialect.Failed) error {
	if err := d.callBuried(ctx, tx, entries); err != nil {
		return err
	}
	err := d.writeFailed(ctx, tx, failed)
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
