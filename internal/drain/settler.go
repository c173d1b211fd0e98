package drain

import (
	"cmp"
	"context"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// settler is the component that writes the outcomes of messages. It knows which have ended and are
// not written yet, what is being written, and what rests since it could not be. It belongs to the
// goroutine of Run.
//
//	fate.go      what becomes of a message that failed
//	removal.go   messages that are simply done
//	parts.go     all other outcomes
//	setback.go   what the database refuses, and rests
//	locked.go    rows that others have locked
//	conclude.go  what is settled, and forgotten
type settler struct {
	*core
	unsettled []*schedule.Entry // finished, except for the messages of the removal and of the part that is being settled
	parts     parts
	removal   *removal
	setbacks  setbacks
	lockFirst bool // the server would continue to wait for a row after a removal was given up
}

func newSettler(shared *core) *settler {
	return &settler{
		core: shared, removal: newRemoval(), parts: parts{sizes: newPartSizes(), ended: make(chan settledPart, 1)},
	}
}

// settleFinished begins to settle the messages that the workers finished, and takes the results of
// what ended.
func (s *settler) settleFinished(ctx context.Context) error {
	err := s.takeEnded(ctx)
	for _, e := range append(s.scheduler.TakeFinished(), s.takeRested()...) {
		s.revoke(e)
		if e.Outcome.Verdict == spool.Again && e.Until.IsZero() && !e.Locked {
			s.setBack(ctx, e, e.Outcome.Err)
		}
		if e.Simple() && !e.Locked {
			s.removal.waiting = append(s.removal.waiting, e)
		} else {
			s.unsettled = append(s.unsettled, e)
			s.lanes.mayBlock(e.Message.Ref.Lane)
		}
	}
	for err == nil && (s.settlePartBeside(ctx) || s.removeBeside(ctx)) {
		err = s.takeEnded(ctx)
	}
	return err
}

// takeEnded processes the results of the part and of the removal that have ended.
func (s *settler) takeEnded(ctx context.Context) error {
	removed := s.takeRemoved(ctx)
	return cmp.Or(removed, s.takeSettledPart(ctx))
}

// beside runs work on a goroutine of its own, for as long as a statement may take.
func (s *settler) beside(ctx context.Context, work func(ctx context.Context)) (abort context.CancelFunc) {
	ctx, abort = context.WithTimeout(context.WithoutCancel(ctx), spool.StatementTimeout)
	s.removal.start(func() {
		defer abort()
		work(ctx)
	})
	return abort
}

// settleRemaining settles all messages, and waits for the removals while ctx lives. It tries locked
// rows, and messages that rest, once, and does not wait for them.
func (s *settler) settleRemaining(ctx context.Context) error {
	s.setbacks.tryNow()
	for {
		err := s.settleFinished(ctx)
		for s.removal.underWay > 0 || len(s.parts.underWay) > 0 { // also after an error, so that all messages are counted
			err = cmp.Or(err, s.awaitEnded(ctx))
		}
		if err != nil || len(s.removal.waiting)+len(s.unsettled) == 0 {
			return err
		}
	}
}

// awaitEnded waits until the removal or the part under way ends, or ctx, which ends both.
func (s *settler) awaitEnded(ctx context.Context) error {
	for _, abort := range []context.CancelFunc{s.removal.abort, s.parts.abort} {
		if abort != nil {
			defer context.AfterFunc(ctx, abort)()
		}
	}
	select {
	case r := <-s.removal.ended:
		return s.endRemoval(ctx, r)
	case r := <-s.parts.ended:
		return s.endPart(ctx, r)
	}
}
