package schedule

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

func messagesOf(batch []*Entry) (list []*spool.Message) {
	for _, e := range batch {
		list = append(list, e.Message)
	}
	return list
}

func TestLimits_count_messages_that_are_handed_out_once_more_and_let_no_other_batch_go_before_them(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := limiting(4, postbox.Limits{Total: postbox.Limit{PerSecond: 4, AtOnce: 2 * ofLanes}, EachKey: perSecond(1)})
		defer stop(s)
		pass(time.Minute) // a message is saved up
		s.Load([]*spool.Message{keyed(1, 7, true), keyed(2, 7, true), stored(3, "a", 0), stored(4, "a", 0)})
		batch := s.TryTake()
		first := messagesOf(batch)
		require.Len(t, first, 1)
		begun := time.Now()
		other := &record{}
		parts := make(chan bool)
		go func() { parts <- s.Repeat(t.Context(), append(first, stored(9, "a", 0), stored(8, "a", 0))) }()
		synctest.Wait()
		other.work(s, 3, time.Millisecond)
		require.True(t, <-parts, "a part that is larger than what is saved up waits for that")
		require.InDelta(t, 0.25, time.Since(begun).Seconds(), 0.001)
		require.Empty(t, other.list())
		s.Finish(batch, one(spool.Done))
		s.settle()
		pass(740 * time.Millisecond)
		require.Empty(t, other.list(), "the part has taken three")
		pass(20 * time.Millisecond)
		require.Equal(t, []int64{3}, other.list(), "its key has had two, so another message is next")
		pass(900 * time.Millisecond)
		require.Equal(t, []int64{3, 4}, other.list())
		pass(100 * time.Millisecond)
		require.Equal(t, []int64{3, 4, 2}, other.list())
	})
}

func TestLimits_do_not_let_a_part_of_a_batch_wait_in_vain(t *testing.T) {
	t.Parallel()
	part := []*spool.Message{stored(1, "a", 0), stored(2, "a", 0)}
	for name, test := range map[string]struct {
		limits  postbox.Limits
		during  func(s *Scheduler, cancel context.CancelFunc)
		allowed bool
		after   time.Duration
	}{
		"no limits":         {allowed: true},
		"another topic":     {limits: postbox.Limits{Topics: map[string]postbox.Limit{"b": perSecond(0.1)}}, allowed: true},
		"its topic":         {limits: postbox.Limits{Topics: map[string]postbox.Limit{"a": perSecond(0.1)}}, allowed: true, after: 10 * time.Second},
		"calls at once":     {limits: postbox.Limits{Total: atOnce(ofLanes)}, allowed: true},
		"the process stops": {limits: postbox.Limits{Total: perSecond(0.1)}, during: func(s *Scheduler, _ context.CancelFunc) { s.Stop() }, after: time.Millisecond},
		"its time is over":  {limits: postbox.Limits{Total: perSecond(0.1)}, during: func(_ *Scheduler, cancel context.CancelFunc) { cancel() }, after: time.Millisecond},
		"the lanes are lost": {
			limits: postbox.Limits{Total: perSecond(0.1)}, during: func(s *Scheduler, _ context.CancelFunc) { s.Share(nil) }, after: recheck,
		},
		"the lease is over": {
			limits: postbox.Limits{Total: perSecond(0.1)}, during: func(s *Scheduler, _ context.CancelFunc) { s.Extend(time.Now()) }, after: recheck,
		},
		"the limit goes": {
			limits: postbox.Limits{Total: perSecond(0.1)}, during: func(s *Scheduler, _ context.CancelFunc) {
				s.SetLimits(postbox.Limits{})
			}, allowed: true, after: recheck,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := limiting(4, test.limits)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				begun := time.Now()
				if test.during != nil {
					time.AfterFunc(time.Millisecond, func() { test.during(s, cancel) })
				}
				require.Equal(t, test.allowed, s.Repeat(ctx, part))
				require.InDelta(t, test.after.Seconds(), time.Since(begun).Seconds(), 0.002)
				require.Zero(t, s.repeats)
				stop(s)
			})
		})
	}
}
