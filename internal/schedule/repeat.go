package schedule

import (
	"context"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A handler of batches gets messages of a batch once more, in smaller parts, if the batch fails.
// Each time counts for the limits. The part waits until the limits allow all its messages, in its
// worker, so it keeps its place: if it went back to the database, the whole batch would be made
// again, and the message that fails would never be found. Meanwhile no other batch takes what the
// part waits for.

// recheck is the longest time for which a part waits without looking whether it may still be handed
// out.
const recheck = time.Second

// Repeat waits until messages that were handed out may be handed out once more, and counts them. It
// reports false if they must not be, or would have to wait while the process stops: then they have
// to be postponed.
func (s *Scheduler) Repeat(ctx context.Context, messages []*spool.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits, allowed := s.repeat(messages)
	if !waits {
		return allowed
	}
	s.repeats++
	for waits && ctx.Err() == nil {
		s.await(ctx, s.limits.granted)
		waits, allowed = s.repeat(messages)
	}
	s.repeats--
	s.work.Broadcast()
	return allowed
}

// await waits for the database's answer, without the lock.
func (s *Scheduler) await(ctx context.Context, granted chan struct{}) {
	s.mu.Unlock()
	defer s.mu.Lock()
	timer := time.NewTimer(recheck)
	defer timer.Stop()
	select {
	case <-granted:
	case <-timer.C:
	case <-ctx.Done():
	case <-s.ended:
	}
}

// repeat counts the messages if they may be handed out now, or asks for what is missing. It does
// not wait if that does not help.
func (s *Scheduler) repeat(messages []*spool.Message) (waits, allowed bool) {
	l, now := s.limits, time.Now()
	if l == nil {
		return false, true
	}
	gates := l.rates(messages)
	for g, n := range gates {
		if tokens, _ := g.tokensLeft(now); tokens < n {
			g.need, waits = max(g.need, n), true
		}
	}
	if waits {
		s.Signal()
		return !s.stopped && !s.leaseOver(), false
	}
	for g, n := range gates {
		g.spend(n)
	}
	return false, true
}

// rates returns how many of the messages each rate counts.
func (l *limits) rates(messages []*spool.Message) map[*gate]int {
	counts := map[*gate]int{}
	for _, m := range messages {
		for _, g := range []*gate{l.total, l.topics[m.Topic]} {
			if g != nil && g.limit.PerSecond > 0 {
				counts[g]++
			}
		}
	}
	return counts
}
