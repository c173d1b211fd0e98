package drain

import (
	"cmp"
	"context"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// conclude forgets messages that are settled. Those whose rows are locked rest.
func (s *settler) conclude(ctx context.Context, entries []*schedule.Entry, locked map[int64]bool) {
	for _, e := range entries {
		if locked[e.Message.Ref.ID] {
			s.awaitLock(e)
		}
	}
	others := unlocked(entries, locked)
	for _, e := range others {
		if e.LockLogged {
			s.logger.Info("Postbox continues with the key of a message whose row was locked", s.lockFields(e))
		}
	}
	s.forgetSettled(ctx, others)
}

// forgetSettled forgets messages that were settled. It does not forget those whose rows were not
// changed: a process that took the lane may have them.
// Suspects whose starts could not be counted rest, too: if they were read again immediately, they
// would keep the database busy.
func (s *settler) forgetSettled(ctx context.Context, entries []*schedule.Entry) {
	var through []*schedule.Entry
	for _, e := range entries {
		switch {
		case e.Unchanged:
			s.restAndReread(ctx, e, errNotRemoved)
		case e.Outcome.Uncounted:
			s.restAndReread(ctx, e, cmp.Or(e.Outcome.Err, spool.ErrLost))
		default:
			through = append(through, e)
		}
	}
	s.observe(through)
	s.forget(through)
}

// noteUnchanged marks a message whose settlement changed nothing: another process may have it now.
func (s *settler) noteUnchanged(e *schedule.Entry) {
	e.Unchanged = true
	s.distrustLanes()
}

// forget drops messages that are settled.
func (s *settler) forget(entries []*schedule.Entry) {
	s.overcome(entries)
	for _, e := range entries {
		ref := e.Message.Ref
		// A message that was put back must be found again. So must the messages behind a message
		// that has released its key. The messages behind a message that waits again need not be
		// read yet, and they may be many. Of a hidden key, reads have also left out earlier
		// messages: those of a transaction that committed late, or of a topic that is available
		// again.
		switch {
		case e.Hidden:
			s.lanes.lower(ref.Lane, 1)
			s.pace.now()
		case e.Outcome.Verdict == spool.Postpone || ref.State == dialect.StateRetrying && wayOf(e) != fail:
			s.readFrom(ref)
		}
		if e.Outcome.Verdict == spool.Postpone && !e.Message.Counted {
			s.lanes.unexpose(e.Message) // still exposed, if it was
		} else {
			s.lanes.endExposure(e.Message)
		}
	}
	for _, ref := range s.scheduler.Settled(entries) {
		s.readFrom(ref)
	}
}
