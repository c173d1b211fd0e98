package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A worker that would hand out something notices first, and the drainer need not wait for its next
// poll.
func TestScheduler_asks_for_a_renewal_when_it_stood_still(t *testing.T) {
	t.Parallel()
	s := ready(1)
	still := 2 * time.Hour
	s.ExtendSince(0, time.Now().Add(time.Hour))
	s.Ahead = func(time.Time) time.Duration { return still }
	taken := make(chan []*Entry, 1)
	s.Load([]*spool.Message{stored(1, "a", 0)})
	go func() { taken <- s.Take() }()
	<-s.Changed
	require.Empty(t, taken)
	s.ExtendSince(still, time.Now().Add(time.Hour))
	require.Len(t, <-taken, 1)
}

// The machine may also stand still while a renewal is under way: the database counts from before.
func TestScheduler_lease_counts_from_before_the_renewal_was_sent(t *testing.T) {
	t.Parallel()
	s := ready(1)
	s.Ahead = func(time.Time) time.Duration { return time.Minute }
	s.ExtendSince(0, time.Now().Add(time.Minute/2))
	require.True(t, s.leaseOver())
}
