package schedule

import (
	"context"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A handler of batches gets messages of a batch once more, in smaller parts, if the batch fails. Each time counts for the
// limits. The part waits until the limits allow all its messages, in its worker, so it keeps its place: if it went back to
// the database, the whole batch would be made again, and the message that fails would never be found. Meanwhile no other
// batch takes what the part waits for.

// recheck is the longest time for which a part waits without looking at its limits, since the share of this process may
// change.
const recheck = time.Second

// Repeat waits until messages that were handed out may be handed out once more, and counts them. It reports false if they
// must not be, or would have to wait while the process stops: then they have to be postponed. The message of a key with a
// limit does not wait for that limit. It counts, so the next message of the key waits longer.
func (s *Scheduler) Repeat(ctx context.Context, messages []*spool.Message) bool {
	for waits := false; ; {
		wait, allowed := s.repeat(messages, &waits)
		if wait == 0 {
			return allowed
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-s.ended:
		}
		timer.Stop()
		if ctx.Err() != nil {
			s.mu.Lock()
			s.stopWaiting(&waits)
			s.mu.Unlock()
			return false
		}
	}
}

// repeat counts the messages if they may be handed out now. Otherwise it returns how long to wait, or 0 if waiting does not
// help.
func (s *Scheduler) repeat(messages []*spool.Message, waits *bool) (wait time.Duration, allowed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, now := s.limits, time.Now()
	if l == nil {
		s.stopWaiting(waits)
		return 0, true
	}
	gates := l.shared(messages)
	for g, n := range gates {
		n = min(n, max(g.bucket.most, 1)) // more are never saved up
		missing := float64(n) - g.bucket.tokensAt(now)
		if missing <= slack {
			continue
		}
		if s.stopped || g.bucket.perSecond == 0 || s.leaseOver() {
			s.stopWaiting(waits)
			return 0, false
		}
		seconds := missing / g.bucket.perSecond
		wait = max(wait, time.Duration(min(seconds, recheck.Seconds())*float64(time.Second))+time.Microsecond)
	}
	if wait > 0 {
		if !*waits && l.total != nil {
			*waits = true
			s.repeats++
		}
		return wait, false
	}
	for g, n := range gates {
		g.bucket.take(now, n)
	}
	for _, m := range messages {
		if g := l.keys[m.Key]; m.Key != "" && g != nil && g.bucket != nil {
			g.bucket.take(now, 1)
		}
	}
	s.stopWaiting(waits)
	return 0, true
}

// shared returns how many of the messages each rate counts that is not of one key.
func (l *limits) shared(messages []*spool.Message) map[*gate]int {
	counts := map[*gate]int{}
	for _, m := range messages {
		for _, g := range []*gate{l.total, l.topics[m.Topic]} {
			if g != nil && g.bucket != nil {
				counts[g]++
			}
		}
	}
	return counts
}

// stopWaiting lets others take from the limits again.
func (s *Scheduler) stopWaiting(waits *bool) {
	if *waits {
		*waits = false
		s.repeats--
		s.work.Broadcast()
	}
}
