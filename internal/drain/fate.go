package drain

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

func byID(a, b *schedule.Entry) int { return cmp.Compare(a.Message.Ref.ID, b.Message.Ref.ID) }

// next is the next step for a message that failed.
type next int

const (
	tryAgain next = iota
	wait          // no attempt is counted
	park
	bury
)

// next applies the retry profile, and at its end the policy for the head of a key.
func (s *settler) next(e *schedule.Entry) next {
	if e.Outcome.Verdict == spool.Wait || e.Outcome.Verdict == spool.Again {
		return wait
	}
	over := e.Outcome.Verdict == spool.Dead || e.Outcome.Final
	if !over && !retries.Exhausted(s.config.Retry, e.Message.Attempts+e.Message.Starts+1) {
		return tryAgain
	}
	if s.config.Head == HeadPark {
		return park
	}
	return bury
}

func (s *settler) delay(e *schedule.Entry) time.Duration {
	if e.Outcome.After > 0 {
		return e.Outcome.After
	}
	return retries.Delay(s.config.Retry, e.Message.Attempts+1)
}

// waitNote begins the failure entry, with attempt 0, of a message that waits without a counted
// attempt.
const waitNote = "the message waits, and no attempt is counted"

// fate returns what is stored of a message that failed.
func (s *settler) fate(e *schedule.Entry) dialect.Failed {
	m := e.Message
	f := dialect.Failed{
		AsRead:      dialect.AsRead{Ref: m.Ref, Attempts: m.Attempts, LeastStarts: m.Started, MostStarts: m.AllStarts()},
		AddAttempts: 1, TakeBackStarts: m.Started, Noted: true, Attempt: m.Attempts + 1,
	}
	reason := e.Outcome.Err
	switch s.next(e) {
	case tryAgain:
		f.Delay = s.delay(e).Microseconds()
	case wait:
		// The reason is recorded when the message begins to wait, so that an operator sees it. It
		// is not recorded again, because an outage may last for thousands of probes. That of
		// [spool.Again] is recorded by setback.go.
		f.Delay, f.AddAttempts, f.Attempt = s.delay(e).Microseconds(), 0, 0
		f.Noted = m.Ref.State != dialect.StateRetrying && reason != nil && e.Outcome.Verdict != spool.Again
		reason = fmt.Errorf("%s: %w", waitNote, reason)
	case park:
		f.Delay, f.LeastStarts = dialect.ParkDelay, m.AllStarts()
	case bury:
		f.Dead, f.Cause, f.LeastStarts, f.MostStarts = true, causeOf(e), m.AllStarts(), math.MaxInt16
	}
	if f.Noted {
		f.Error = spool.ErrorText(reason)
	}
	return f
}

// logEnd says of a message that was settled if it is not tried again by itself.
func (s *settler) logEnd(e *schedule.Entry, f dialect.Failed) {
	text := "Postbox moved a message to the dead letters"
	switch {
	case f.Dead:
	case f.Delay == dialect.ParkDelay:
		text = "Postbox parked a message: it waits for an operator, and so do later messages with its ordering key"
	default:
		return
	}
	s.logger.Error(text, e.Outcome.Err, watermill.LogFields{
		"spool": s.spool.Name(), "topic": e.Message.Topic, "message_uuid": e.Message.MessageID, "attempts": e.Message.Attempts + 1,
		"permanent": e.Outcome.Verdict == spool.Dead,
	})
}

// hooked reports whether Buried is called for a message.
func (s *settler) hooked(f dialect.Failed) bool { return f.Dead && s.configured.Buried != nil }

// causeOf returns why a message becomes a dead letter.
func causeOf(e *schedule.Entry) dialect.Cause {
	switch {
	case e.Message.Broken != nil:
		return dialect.CauseUnreadable
	case e.Message.Doomed != nil:
		return dialect.CauseCrash
	case e.Outcome.Verdict == spool.Dead:
		return dialect.CausePermanent
	default:
		return dialect.CauseAttempts
	}
}

// callBuried calls Buried for each dead message, before anything is written of them.
func (s *settler) callBuried(ctx context.Context, tx *sql.Tx, entries []*schedule.Entry) error {
	for _, e := range entries {
		m := e.Message
		large := !m.Loaded // its payload, see dropPayloads
		if large {
			if _, err := s.loadPayload(ctx, tx, m); err != nil {
				return err
			}
		}
		err := s.configured.Buried(ctx, m, m.Attempts+1, e.Outcome.Err)
		if large {
			m.Unload() // a part may have many such messages, and many may wait for another try
		}
		if err != nil {
			return hookError{fmt.Errorf("report that message %d is dead: %w", m.Ref.ID, err)}
		}
	}
	return nil
}

// hookError means that a message could not be buried because Buried failed. It concerns this
// message alone, whatever the error looks like. The cause may be anywhere, such as a broker that is
// unavailable. If the drainer's own database is unavailable, the next statement reports that.
type hookError struct{ error }

// Unwrap returns the wrapped error.
func (e hookError) Unwrap() error { return e.error }
