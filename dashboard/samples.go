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
)

// sample is what was counted at one moment.
type sample struct {
	at      time.Time
	pending map[admin.Target]int
}

// samples counts for the pages, and remembers what was counted in the last hour.
type samples struct {
	admin *admin.Admin
	// lock is held while the database counts. It is a channel so that waiting for it ends with a
	// context.
	lock chan struct{}
	// actions is the number of actions so far: what was counted before one of them is not shown
	// after it.
	actions atomic.Int64

	now   counted // and what was counted before
	after int64   // the number of actions when it was counted
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
	if time.Since(s.now.at) >= shareFor || s.after != actions {
		queues, err := s.admin.Queues(ctx)
		if err != nil {
			return counted{}, err
		}
		first := slices.IndexFunc(queues, func(info admin.QueueInfo) bool { return isInbox(info.Target) })
		if first < 0 {
			first = len(queues)
		}
		s.now = counted{queues: queues[:first], inboxes: queues[first:], at: time.Now(), kept: s.now.kept}
		s.after = actions
		s.keep()
	}
	return s.now, nil
}

// keep adds what was counted to the samples. It makes a new list, since pages read the old one.
func (s *samples) keep() {
	kept, at := s.now.kept, s.now.at
	if n := len(kept); n > 0 && at.Sub(kept[n-1].at) < sampleEvery {
		return
	}
	latest := sample{at: at, pending: map[admin.Target]int{}}
	for _, q := range s.now.queues[:min(len(s.now.queues), maxSampled)] {
		latest.pending[q.Target] = q.Pending
	}
	kept = slices.DeleteFunc(slices.Clone(kept), func(old sample) bool { return at.Sub(old.at) > sampleSpan })
	s.now.kept = slices.Insert(kept, len(kept), latest)
}
