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
		s := limiting(4, postbox.Limits{Total: postbox.Limit{PerSecond: 4, MaxConcurrent: 64}})
		defer stop(s)
		s.Load(backlog(4, "a"))
		require.Nil(t, s.TryTake(), "no slot")
		pass(time.Millisecond)
		require.Nil(t, s.TryTake(), "no token")
		pass(300 * time.Millisecond)
		batch := s.TryTake()
		require.Len(t, batch, 1)
		begun := time.Now()
		other := &record{}
		parts := make(chan bool)
		go func() {
			parts <- s.Repeat(t.Context(), append(messagesOf(batch), stored(9, "a", 0), stored(8, "a", 0)))
		}()
		synctest.Wait()
		other.work(s, 3, time.Millisecond)
		require.True(t, <-parts, "a part that is larger than a grant waits for all of it")
		require.InDelta(t, 0.75, time.Since(begun).Seconds(), 0.1)
		require.Empty(t, other.list())
		s.Finish(batch, one(spool.Done))
		s.settle()
		pass(200 * time.Millisecond)
		require.Empty(t, other.list(), "the part has taken three")
		pass(time.Second)
		require.NotEmpty(t, other.list())
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
		"its topic":         {limits: postbox.Limits{Topics: map[string]postbox.Limit{"a": perSecond(0.1)}}, allowed: true, after: 20 * time.Second},
		"calls at once":     {limits: postbox.Limits{Total: atOnce(32)}, allowed: true},
		"the process stops": {limits: postbox.Limits{Total: perSecond(0.1)}, during: func(s *Scheduler, _ context.CancelFunc) { s.Stop() }, after: time.Millisecond},
		"its time is over":  {limits: postbox.Limits{Total: perSecond(0.1)}, during: func(_ *Scheduler, cancel context.CancelFunc) { cancel() }, after: time.Millisecond},
		"the lease is over": {
			limits: postbox.Limits{Total: perSecond(0.1)}, during: func(s *Scheduler, _ context.CancelFunc) { s.Extend(time.Now()) }, after: recheck,
		},
		"the limit goes": {
			limits: postbox.Limits{Total: perSecond(0.1)}, during: func(s *Scheduler, _ context.CancelFunc) {
				s.SetLimits(postbox.Limits{})
			}, allowed: true, after: time.Millisecond,
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
