package spool

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// removal is the settlement of messages that are simply done. It goes on beside the drainer's reads, on a connection of
// its own where the pool has one: what is in memory is not read again, so nothing that a read finds depends on whether
// these rows are gone yet. Everything else is settled before the next read.
type removal struct {
	waiting  []*entry
	underWay int // messages of the one that is under way; none while there is none
	most     int // messages that one takes, after the database refused one; 0: all
	ended    chan removed
	abort    context.CancelFunc // of the one under way
	running  sync.WaitGroup
	start    func(work func())
}

// removed is how a removal ended.
type removed struct {
	entries []*entry
	missing bool // some were not there, or not under this token
	err     error
}

func newRemoval() *removal {
	r := &removal{ended: make(chan removed, 1)}
	r.start = r.running.Go
	return r
}

// settleFinished settles what the workers finished, or begins to. What cannot be settled now is kept for the next step:
// until then nothing is fetched, since the database would hand out what must wait.
func (d *Drainer) settleFinished(ctx context.Context) error {
	if err := d.takeRemoved(ctx); err != nil {
		return err
	}
	for _, e := range append(d.scheduler.takeFinished(), d.takeRested()...) {
		d.revoke(e)
		if e.outcome.Verdict == Again && e.until.IsZero() {
			d.setBack(ctx, e, e.outcome.Err)
		}
		if e.simple() {
			d.removal.waiting = append(d.removal.waiting, e)
		} else {
			d.unsettled = append(d.unsettled, e)
		}
	}
	if err := d.settleUnsettled(ctx); err != nil {
		return err
	}
	if len(d.removal.waiting) == 0 || d.removal.underWay > 0 {
		return nil
	}
	d.removeBeside(ctx)
	return d.takeRemoved(ctx)
}

// simple says that nothing but this message depends on its being settled.
func (e *entry) simple() bool {
	return e.outcome.Verdict == Done && !e.opens && e.message.Ref.State != dialect.StateRetrying
}

func (d *Drainer) removeBeside(ctx context.Context) {
	entries := d.removal.waiting
	if most := d.removal.most; most > 0 {
		entries = entries[:min(most, len(entries))]
	}
	d.removal.waiting, d.removal.underWay = d.removal.waiting[len(entries):], len(entries)
	refs := make([]dialect.Ref, len(entries))
	for i, e := range entries {
		refs[i] = e.message.Ref
	}
	keep, seen := d.config.History > 0, d.seen()
	d.scheduler.await(true)
	ctx, d.removal.abort = context.WithTimeout(context.WithoutCancel(ctx), statementTimeout) //nolint:gosec // it is called at the end
	abort := d.removal.abort
	d.removal.start(func() {
		defer abort()
		missing, err := d.remove(ctx, refs, keep, seen)
		if missing {
			err = d.takeBackStarts(ctx, entries)
		}
		d.removal.ended <- removed{entries: entries, missing: missing, err: err}
		d.scheduler.await(false)
	})
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

// settleRest settles all, and waits for it while ctx lives.
func (d *Drainer) settleRest(ctx context.Context) error {
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
	d.removal.underWay = 0
	if r.missing {
		d.lookAgain()
	}
	switch {
	case r.err == nil && r.missing: // which of them nobody knows: those that are still there are read again
		for _, e := range r.entries {
			d.restAgain(ctx, e)
		}
	case r.err == nil:
		d.removal.widen()
		d.forget(r.entries)
	case !d.isRefusal(r.err):
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

// widen lets the next removal take more messages again.
func (r *removal) widen() {
	if r.most *= 2; r.most > maxSettle {
		r.most = 0
	}
}

// waitsAgain says whether a message keeps its key closed for others.
func (d *Drainer) waitsAgain(e *entry) bool {
	switch e.outcome.Verdict {
	case Wait, Again:
		return true
	case Retry, Dead:
		return d.next(e) != bury
	default:
		return false
	}
}

// forget drops messages that are settled.
func (d *Drainer) forget(entries []*entry) {
	d.overcome(entries)
	for _, e := range entries {
		ref := e.message.Ref
		// What was put back must be found again, and so must what stood behind a message that has given its key free.
		// What stands behind one that waits again is still not to be read: it may be much.
		if e.outcome.Verdict == Postpone || ref.State == dialect.StateRetrying && !d.waitsAgain(e) {
			d.lanes.lower(ref.Lane, ref.ID)
			d.pollAt = time.Time{}
		}
		d.lanes.settled(e.message)
	}
	d.scheduler.settled(entries)
}
