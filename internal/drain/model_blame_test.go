package drain

import (
	"errors"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// modelCall is a call that a process has made to the broker: for one message that failed for an
// unknown reason, or for messages that got through.
type modelCall struct {
	began, ended int64 // by the world's count of what happens
	at           time.Time
	topic        string
	messages     []spool.Identity
	through      bool
}

// modelCalls are all that a process has seen of the broker, in the order of their ends.
type modelCalls []modelCall

func (s *modelCalls) add(c modelCall) modelCall {
	*s = append(*s, c)
	return c
}

var (
	errNoSignOfLife = errors.New("it counts, and nothing has got through since it failed before")
	errWasOutage    = errors.New("it counts, and what failed together with it before has got through since")
	errComesBack    = errors.New("it counts within a minute after it was seen that there was an outage")
)

// mayCount judges an attempt that is counted for an unknown failure, by what docs/retries.md
// says of whose fault it is, and by nothing but what the process has seen.
func (s *modelCalls) mayCount(failed modelCall, limit time.Duration) error {
	if s.quiet(failed) >= limit {
		return nil
	}
	failures := s.failures(failed)
	if len(failures) < 2 || !s.lives(failures[len(failures)-2], failed) {
		return errNoSignOfLife
	}
	if s.wasOutage(failures[len(failures)-2]) {
		return errWasOutage
	}
	if s.comesBack(failed) && s.failsAlone(failures) < time.Minute {
		return errComesBack
	}
	return nil
}

// quiet is how long messages of the topic have failed and none has got through.
func (s *modelCalls) quiet(failed modelCall) time.Duration {
	var life int64
	for _, c := range *s {
		if c.through && c.topic == failed.topic {
			life = max(life, c.began)
		}
	}
	for _, c := range *s {
		if !c.through && c.topic == failed.topic && c.ended > life {
			return failed.at.Sub(c.at)
		}
	}
	return 0
}

// failures are those of a message up to this one, since it got through the last time, if it ever
// did.
func (s *modelCalls) failures(failed modelCall) (failures []modelCall) {
	for _, c := range *s {
		switch {
		case !slices.Contains(c.messages, failed.messages[0]):
		case c.through:
			failures = nil
		default:
			failures = append(failures, c)
		}
	}
	return failures
}

// lives says whether something got through between two failures.
func (s *modelCalls) lives(before, after modelCall) bool {
	return slices.ContainsFunc(*s, func(c modelCall) bool {
		return c.through && c.topic == after.topic && c.began > before.ended && c.ended < after.ended
	})
}

// wasOutage says whether a message that failed together with another one before got through later,
// so that it was no fault of theirs.
func (s *modelCalls) wasOutage(before modelCall) bool {
	for _, c := range *s {
		if c.through || c.topic != before.topic || s.lives(before, c) || s.lives(c, before) {
			continue
		}
		if slices.ContainsFunc(*s, func(later modelCall) bool {
			return later.through && later.ended > max(c.ended, before.ended) && slices.Contains(later.messages, c.messages[0])
		}) {
			return true
		}
	}
	return false
}

// comesBack says whether a message of the topic that had failed got through less than a minute ago.
func (s *modelCalls) comesBack(failed modelCall) bool {
	hasFailed := map[spool.Identity]bool{}
	var last time.Time
	for _, c := range *s {
		for _, m := range c.messages {
			if c.through && hasFailed[m] && c.topic == failed.topic {
				last = c.at
			}
			hasFailed[m] = !c.through
		}
	}
	return failed.at.Sub(last) < time.Minute
}

// failsAlone returns for how long a message has failed although others got through.
func (s *modelCalls) failsAlone(failures []modelCall) time.Duration {
	last := failures[len(failures)-1]
	since := last.at
	for i := len(failures) - 1; i > 0 && s.lives(failures[i-1], failures[i]); i-- {
		since = failures[i].at
	}
	return last.at.Sub(since)
}
