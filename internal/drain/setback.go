package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A setback means that a message cannot be settled, although neither the message nor the database
// is at fault. Its row is locked, see locked.go. Its transaction conflicts with others. The server
// reports an error, such as that of a trigger. Or a dead letter cannot be published as well, since
// it is too large for the outbox.
//
// Mostly a second try after a short pause works. A setback may also last, as with a trigger that
// always raises a serialization failure. So the pause doubles with each setback in a row. After
// some of them, the setback is logged once and recorded among the failures of the message, where
// operators see it. No attempt is counted, because the message is not to blame.
//
// A message with the verdict [spool.Again] is handled again. It waits in the database, as every
// failed message does, so that reads leave out the messages behind it. If its row cannot be changed
// either, it rests in memory. A message with another outcome has been handled, or published, and is
// not handled again. It rests in memory, with its key closed, until that outcome is written.

const (
	// setbackPause is the approximate pause after a first setback, setbackMost the longest pause.
	setbackPause = 20 * time.Millisecond
	setbackMost  = 10 * time.Second
	// setbacksUntilLogged is the number of setbacks in a row after which a message is reported for
	// the first time. It is recorded among the failures of the message then, and at each doubling
	// of the number.
	setbacksUntilLogged = 6
	// maxNamed bounds the number of messages that the log names at a time: if all messages are held
	// up, a few names are enough. A named message no longer counts when it has had no setback for
	// setbackRecent: it was deleted, its lane was lost, or its handler takes long.
	maxNamed      = 10
	setbackRecent = time.Minute
	// maxSetbacks bounds the number of messages whose setbacks are remembered. When it is reached,
	// most of these messages are already gone: they were removed together with one that was
	// refused. Messages that were not reported start again with a short pause.
	maxSetbacks = 10_000
	// fullMemoryRepeat is the interval at which the log repeats that messages which cannot be
	// settled fill the memory.
	fullMemoryRepeat = 10 * time.Minute
)

// errNotRemoved is the reason of a setback if the database reports no error.
var errNotRemoved = errors.New("the database reported no error, but neither removed nor changed the message")

// setbacks holds the messages that could not be settled. It belongs to the drainer's goroutine.
type setbacks struct {
	known map[spool.Identity]setback
	named map[spool.Identity]time.Time // last setback of each message that counts among the named ones
	// fullMemoryLogged is when the log last reported that such messages fill the memory.
	fullMemoryLogged time.Time
	// resting are all messages that wait to be settled, until their time comes, or until another
	// drainer has their lane. Those whose rows are locked are tried again together, at lockedUntil.
	resting     []*schedule.Entry
	lockedUntil time.Time
}

// until returns until when a message rests.
func (s *setbacks) until(e *schedule.Entry) time.Time {
	if e.Locked {
		return s.lockedUntil
	}
	return e.Until
}

// anyLocked reports whether a message rests because its row is locked.
func (s *setbacks) anyLocked() bool {
	return slices.ContainsFunc(s.resting, func(e *schedule.Entry) bool { return e.Locked })
}

// tryNow ends the rest of all messages.
func (s *setbacks) tryNow() {
	s.lockedUntil = time.Time{}
	for _, e := range s.resting {
		e.Until = time.Time{}
	}
}

// setback is the state of one message.
type setback struct {
	inARow int
	named  bool // in the log
}

// of returns the number of setbacks in a row of a message.
func (s *setbacks) of(m *spool.Message) int { return s.known[m.Identity()].inARow }

// add counts a setback. It returns the number in a row and the pause that follows.
func (s *setbacks) add(m *spool.Message, now time.Time) (inARow int, pause time.Duration) {
	if len(s.known) >= maxSetbacks {
		maps.DeleteFunc(s.known, func(_ spool.Identity, b setback) bool { return b.inARow < setbacksUntilLogged })
	}
	if s.known == nil || len(s.known) >= maxSetbacks {
		s.known, s.named = map[spool.Identity]setback{}, map[spool.Identity]time.Time{}
	}
	key := m.Identity()
	b := s.known[key]
	b.inARow++
	s.known[key] = b
	inARow = b.inARow
	if !s.named[key].IsZero() {
		s.named[key] = now
	}
	pause = setbackMost
	if doublings := inARow - 1; doublings < 32 {
		pause = min(setbackPause<<doublings, setbackMost)
	}
	return inARow, pause/2 + rand.N(pause/2) //nolint:gosec // the jitter, which keeps messages that conflicted from conflicting again, needs no secrecy
}

// name reports whether the log should name a message: each message once, and at most maxNamed
// messages at a time.
func (s *setbacks) name(m *spool.Message, now time.Time) bool {
	maps.DeleteFunc(s.named, func(_ spool.Identity, last time.Time) bool { return now.Sub(last) > setbackRecent })
	key := m.Identity()
	b := s.known[key]
	if b.named || len(s.named) >= maxNamed {
		return false
	}
	b.named = true
	s.known[key], s.named[key] = b, now
	return true
}

// forget removes the setbacks of a message.
func (s *setbacks) forget(m *spool.Message) {
	delete(s.known, m.Identity())
	delete(s.named, m.Identity())
}

// setBack records a setback of a message.
func (s *settler) setBack(ctx context.Context, e *schedule.Entry, reason error) {
	if reason == nil {
		reason = errNotRemoved
	}
	now := time.Now()
	inARow, pause := s.setbacks.add(e.Message, now)
	e.Until = now.Add(pause)
	if e.Outcome.Verdict == spool.Again {
		e.Outcome.After = pause
	}
	if inARow < setbacksUntilLogged || inARow%setbacksUntilLogged != 0 || !isPowerOfTwo(inARow/setbacksUntilLogged) {
		return
	}
	s.noteSetback(ctx, e.Message, inARow, reason)
	if s.setbacks.name(e.Message, now) {
		s.logger.Error("Postbox cannot settle a message and goes on trying, with no attempt counted", reason, s.setbackFields(e.Message, inARow))
	}
}

func isPowerOfTwo(n int) bool { return n&(n-1) == 0 }

func (s *settler) setbackFields(m *spool.Message, inARow int) watermill.LogFields {
	return watermill.LogFields{"spool": s.spool.Name(), "topic": m.Topic, "message_uuid": m.MessageID, "in_a_row": inARow}
}

// noteSetback writes the number of setbacks to the failures of the message, with attempt 0. It
// ignores errors.
func (s *settler) noteSetback(ctx context.Context, m *spool.Message, inARow int, reason error) {
	text := spool.ErrorText(fmt.Errorf("the message could not be settled %d times in a row, and no attempt is counted: %w", inARow, reason))
	note := dialect.Failure{Subject: m.Subject(), Error: text, Process: s.config.Process}
	err := s.inTime(ctx, func(ctx context.Context) error {
		return spool.Run(ctx, s.db, s.spool.Statements.InsertFailure(note))
	})
	if err != nil {
		s.logger.Debug("Postbox could not record that a message cannot be settled: "+err.Error(), s.setbackFields(m, inARow))
	}
}

// overcome forgets the setbacks of messages that have ended, with any outcome.
func (s *settler) overcome(entries []*schedule.Entry) {
	if len(s.setbacks.known) == 0 {
		return
	}
	for _, e := range entries {
		was := s.setbacks.known[e.Message.Identity()]
		if was.inARow == 0 || e.Outcome.Verdict == spool.Postpone || e.Outcome.Verdict == spool.Again {
			continue
		}
		s.setbacks.forget(e.Message)
		if was.named {
			s.logger.Info("Postbox has settled a message that it could not settle before", s.setbackFields(e.Message, was.inARow))
		}
	}
}

// errMemoryFull is the reason for not reading any messages.
var errMemoryFull = errors.New("the memory is full of handled messages that cannot be settled: their rows are locked, the database refuses to remove them, or Poison.Outbox does not accept them")

// logFullMemory logs that messages which cannot be settled leave no room to read others, and
// repeats it from time to time. A memory that is full of other messages is usual under load and not
// logged.
func (s *settler) logFullMemory(page int) {
	resting := len(s.setbacks.resting)
	_, full := roomBeside(resting-min(resting, page), page)
	if !full || time.Since(s.setbacks.fullMemoryLogged) < fullMemoryRepeat {
		return
	}
	s.setbacks.fullMemoryLogged = time.Now()
	s.logger.Error("Postbox reads no more messages", errMemoryFull, watermill.LogFields{"spool": s.spool.Name(), "messages": resting})
}

// isConflict reports whether an error comes from a conflict with other transactions, which may end
// at any time.
func (c *core) isConflict(err error) bool {
	return errors.Is(err, spool.ErrLost) || c.spool.Statements.Kind.Classify(err) == dialect.Conflict
}

// dueToMessages reports whether a settlement failed with this error because of its messages, so
// that it may work later, or message by message. Such an error is a conflict, a dead letter that
// the outbox rejects, a part that was out of time, or a statement that the server refuses, for
// example because a trigger raises an error for one message.
func (s *settler) dueToMessages(err error) bool {
	var ofHook hookError
	var outOfTime outOfTimeError
	return errors.As(err, &ofHook) || errors.As(err, &outOfTime) || s.isConflict(err) || dialect.Coded(err) && s.spool.Statements.Kind.Classify(err) == dialect.Other
}

// restAndReread lets a message rest that is read again then, and handled again if it still exists.
func (s *settler) restAndReread(ctx context.Context, e *schedule.Entry, reason error) {
	e.Unchanged, e.Message.Started = false, 0 // its start has been taken back
	if e.Outcome.Verdict != spool.Again {
		e.Outcome = spool.Outcome{Verdict: spool.Again}
		e.Until = time.Time{}
	}
	s.rest(ctx, e, reason)
}

// rest lets a message rest that has finished and could not be settled, with its key closed. If it
// has an outcome, its lane is not handed back meanwhile.
func (s *settler) rest(ctx context.Context, e *schedule.Entry, reason error) {
	if errors.Is(reason, spool.ErrLost) { // or its row cannot be removed: if the lane was lost, the renewal finds out now
		s.distrustLanes()
		reason = errNotRemoved
	}
	if e.Until.IsZero() {
		s.setBack(ctx, e, reason)
	}
	e.Locked = false
	s.layDown(e)
}

// layDown adds a message to the resting ones.
func (s *settler) layDown(e *schedule.Entry) {
	s.setbacks.resting = append(s.setbacks.resting, e)
	if e.Locked || mustBeStored(e.Outcome.Verdict) {
		s.keepLane(e)
	}
	s.scheduler.CloseKey(e)
}

// takeRested returns the messages that have rested. Messages that must be read again are returned
// as postponed, the others with their outcome. If the lane is lost, or is handed back, its messages
// do not rest, and the next holder decides about them.
func (s *settler) takeRested() (rested []*schedule.Entry) {
	now := time.Now()
	slices.SortStableFunc(s.setbacks.resting, byID)
	waits := map[int64]time.Time{} // until when an earlier message rests, by key
	s.setbacks.resting = slices.DeleteFunc(s.setbacks.resting, func(e *schedule.Entry) bool {
		lane := s.lanes.of(e.Message)
		mine := lane != nil && !lane.leaving
		until := later(s.setbacks.until(e), waits[e.Message.KeyHash])
		if mine && now.Before(until) {
			if e.Until = until; e.Message.HasKey {
				waits[e.Message.KeyHash] = until
			}
			return false
		}
		e.Until = time.Time{}
		if !mine || e.Outcome.Verdict == spool.Again && !e.Locked {
			e.Outcome, e.Locked = spool.Outcome{Verdict: spool.Postpone}, false
		}
		rested = append(rested, e)
		return true
	})
	return rested
}

// nextRested returns when the first of the resting messages is due; zero if there is none.
func (s *settler) nextRested() (next time.Time) {
	for _, e := range s.setbacks.resting {
		if until := s.setbacks.until(e); next.IsZero() || until.Before(next) {
			next = until
		}
	}
	return next
}
