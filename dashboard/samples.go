package dashboard

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

const (
	// shareFor is how long operators who look at the same time share one count.
	shareFor = time.Second
	// sampleEvery and sampleSpan bound the memory: at most 720 samples.
	sampleEvery = 5 * time.Second
	sampleSpan  = time.Hour
	// maxSampled is how many outboxes and queues a sample has.
	maxSampled = 100
	// rateSpan is the time over which a rate is computed.
	rateSpan = time.Minute
)

// sample is what was counted at one moment.
type sample struct {
	at     time.Time
	counts map[admin.Target]counts
}

type counts struct{ pending, dead, done int }

// samples counts for the pages, and remembers what was counted in the last hour.
type samples struct {
	admin *admin.Admin
	// lock is held while the database counts. It is a channel so that waiting for it ends with a
	// context.
	lock chan struct{}
	// actions is the number of actions so far: what was counted before one of them is not shown
	// after it.
	actions atomic.Int64

	latest   []admin.QueueInfo
	inboxes  []admin.QueueInfo
	latestAt time.Time
	counted  int64 // the number of actions when it was counted
	kept     []sample
}

func newSamples(operator *admin.Admin) *samples {
	return &samples{admin: operator, lock: make(chan struct{}, 1)}
}

// forget makes the next page count again.
func (s *samples) forget() { s.actions.Add(1) }

// counted is what the overview shows.
type counted struct {
	queues  []admin.QueueInfo
	inboxes []admin.QueueInfo // with a history or with dead letters
	at      time.Time
	kept    []sample // must not be changed
}

// countFor returns the target that an address names, and the counts.
func (h *Handler) countFor(ctx context.Context, q *request) (target admin.Target, now counted, err error) {
	if target, err = q.target(); err != nil {
		return target, now, err
	}
	now, err = h.samples.count(ctx)
	return target, now, err
}

// count returns the state of all outboxes, queues and inboxes, at most a second old, and the
// samples of the last hour.
func (s *samples) count(ctx context.Context) (counted, error) {
	select {
	case s.lock <- struct{}{}:
		defer func() { <-s.lock }()
	case <-ctx.Done():
		return counted{}, errNoAnswer
	}
	actions := s.actions.Load()
	if time.Since(s.latestAt) >= shareFor || s.counted != actions {
		queues, err := s.admin.Queues(ctx)
		if err != nil {
			return counted{}, err
		}
		var inboxes []admin.QueueInfo
		if i := slices.IndexFunc(queues, func(info admin.QueueInfo) bool { return isInbox(info.Target) }); i >= 0 {
			queues, inboxes = queues[:i], queues[i:]
		}
		s.latest, s.inboxes, s.latestAt, s.counted = queues, inboxes, time.Now(), actions
		s.keep()
	}
	return counted{queues: s.latest, inboxes: s.inboxes, at: s.latestAt, kept: s.kept}, nil
}

// keep adds what was counted to the samples. It makes a new list, since pages read the old one.
func (s *samples) keep() {
	if n := len(s.kept); n > 0 && s.latestAt.Sub(s.kept[n-1].at) < sampleEvery {
		return
	}
	first := 0
	for first < len(s.kept) && s.latestAt.Sub(s.kept[first].at) > sampleSpan {
		first++
	}
	now := sample{at: s.latestAt, counts: map[admin.Target]counts{}}
	for _, q := range s.latest[:min(len(s.latest), maxSampled)] {
		now.counts[q.Target] = counts{pending: q.Pending, dead: q.Dead, done: q.Done}
	}
	s.kept = append(append(make([]sample, 0, len(s.kept)-first+1), s.kept[first:]...), now)
}

// rate is how fast a number changes a second, over the last minute, and whether that is known.
func (c counted) rate(target admin.Target, now int, value func(counts) int) (float64, bool) {
	for _, old := range c.kept {
		elapsed := c.at.Sub(old.at)
		if elapsed > rateSpan {
			continue
		}
		was, sampled := old.counts[target]
		if !sampled || elapsed < sampleEvery || max(now, value(was)) > admin.CountedUpTo {
			return 0, false
		}
		return float64(now-value(was)) / elapsed.Seconds(), true
	}
	return 0, false
}
