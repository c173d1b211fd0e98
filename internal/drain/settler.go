package drain

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// settler is the component that writes the outcomes of messages. It knows which have ended and are
// not written yet, what is being written, and what rests since it could not be. It belongs to the
// goroutine of Run.
//
//	fate.go      what becomes of a message that failed
//	patience.go  for how long a removal waits for locks
//	removal.go   messages that are simply done
//	parts.go     all other outcomes
//	setback.go   what the database refuses, and rests
//	locked.go    rows that others have locked
//	conclude.go  what is settled, and forgotten
//	observe.go   what is reported of it
type settler struct {
	*core
	done          []*schedule.Entry // to be removed, and nothing else
	unsettled     []*schedule.Entry // finished, with another outcome, or could not be removed
	removal, part writing           // of these
	ended         chan settledPart  // results of both
	sizes         partSizes
	setbacks      setbacks
	patience      time.Duration // of a removal that has not locked its rows
	lockFirst     bool          // the server would continue to wait for a row after a removal was given up
	running       sync.WaitGroup
	start         func(work func())
}

// writing is what is being written beside the reads: a removal or a part.
type writing struct {
	underWay []*schedule.Entry // empty if nothing is
	failed   bool              // the last one failed, for a reason other than its messages
	abort    context.CancelFunc
}

// settledPart is the result of a part.
type settledPart struct {
	by     way
	part   []*schedule.Entry
	fates  []dialect.Failed  // of messages that failed
	locked map[int64]bool    // rows that are locked
	gone   []*schedule.Entry // they were not found: another process may have them, or they were removed
	late   bool              // a statement was given up, though no row was locked
	took   time.Duration
	err    error
}

func newSettler(shared *core) *settler {
	s := &settler{core: shared, ended: make(chan settledPart, 2), sizes: newPartSizes(), patience: LockPatience}
	s.start = s.running.Go
	return s
}

// settleFinished begins to settle the messages that the workers finished, and takes the results of
// what ended.
func (s *settler) settleFinished(ctx context.Context) error {
	err := s.takeEnded(ctx)
	finished := s.scheduler.TakeFinished()
	for _, e := range finished {
		if s.revoke(e); e.Outcome.Verdict == spool.Again {
			s.setBack(ctx, e, e.Outcome.Err)
		}
	}
	s.add(finished)
	for _, e := range s.takeRested() {
		s.revoke(e)
		s.leaveToParts(e)
	}
	for err == nil && (s.settlePartBeside(ctx) || s.removeBeside(ctx)) {
		err = s.takeEnded(ctx)
	}
	return err
}

// add adds messages to those that are to be removed, or settled in parts. The drainer may have
// started over since they finished.
func (s *settler) add(finished []*schedule.Entry) {
	for _, e := range finished {
		if s.revoke(e); e.Simple() {
			s.done = append(s.done, e)
		} else {
			s.leaveToParts(e)
		}
	}
}

func (s *settler) leaveToParts(e *schedule.Entry) {
	s.unsettled = append(s.unsettled, e)
	s.lanes.mayBlock(e.Message.Ref.Lane)
}

// takeEnded processes the results of what has ended: also after an error, since one outage would
// count as two otherwise.
func (s *settler) takeEnded(ctx context.Context) (err error) {
	for {
		select {
		case r := <-s.ended:
			err = cmp.Or(err, s.endPart(ctx, r))
		default:
			return err
		}
	}
}

// begin settles a part on a goroutine of its own, for as long as a statement may take.
func (s *settler) begin(ctx context.Context, w *writing, r settledPart, how manner) {
	ctx, abort := context.WithTimeout(context.WithoutCancel(ctx), spool.StatementTimeout)
	w.underWay, w.abort = r.part, abort
	s.start(func() {
		defer abort()
		began := time.Now()
		s.settlePart(ctx, &r, how)
		r.took = time.Since(began)
		s.ended <- r
		if r.by == removeDone {
			s.scheduler.Await(false)
		} else {
			s.scheduler.Signal()
		}
	})
}

// settleRemaining settles all messages, and waits for the removals while ctx lives. It tries locked
// rows, and messages that rest, once, and does not wait for them.
func (s *settler) settleRemaining(ctx context.Context) error {
	s.setbacks.tryNow()
	for {
		err := s.settleFinished(ctx)
		for len(s.removal.underWay)+len(s.part.underWay) > 0 { // also after an error, so that all messages are counted
			err = cmp.Or(err, s.awaitEnded(ctx))
		}
		if err != nil || len(s.done)+len(s.unsettled) == 0 {
			return err
		}
	}
}

// awaitEnded waits until the removal or the part under way ends, or ctx, which ends both.
func (s *settler) awaitEnded(ctx context.Context) error {
	for _, abort := range []context.CancelFunc{s.removal.abort, s.part.abort} {
		if abort != nil {
			defer context.AfterFunc(ctx, abort)()
		}
	}
	return s.endPart(ctx, <-s.ended)
}
