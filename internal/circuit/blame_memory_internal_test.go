package circuit

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// The destination comes back a part at a time, and in the first part no message waits any more that
// had failed.
func TestBlame_G7_a_proved_outage_is_remembered_longer_than_its_messages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newExchange(t, nil)
		defer x.circuits.Stop()
		first, other, good := x.message("first"), x.message("other"), x.message("good")
		fail := func(m *spool.Message) Blame { return x.circuits.Failed(m, x.circuits.Again(), 0) }
		succeed := func(m *spool.Message) { x.circuits.Succeeded(m.Topic, x.circuits.Again(), []*spool.Message{m}) }
		require.False(t, fail(first).Counts)
		succeed(first) // it was an outage
		require.Empty(t, x.circuits.failures)

		require.False(t, fail(other).Counts)
		for range 5 {
			succeed(good)
			require.False(t, fail(other).Counts, "its part may not be back")
			time.Sleep(recovery / 6) //nolint:forbidigo // the time of a synctest bubble
		}
		time.Sleep(recovery / 6) //nolint:forbidigo // the time of a synctest bubble
		succeed(good)
		require.True(t, fail(other).Counts, "it has had its time")

		succeed(other)
		for n := range 1000 { // topics that come and go
			m := &spool.Message{Ref: dialect.Ref{ID: int64(n)}, Topic: fmt.Sprint(n)}
			fail(m)
			succeed(m)
		}
		topics := func() int {
			x.circuits.mu.Lock() // timers forget them
			defer x.circuits.mu.Unlock()
			return len(x.circuits.topics)
		}
		require.Equal(t, 1001, topics())
		time.Sleep(recovery) //nolint:forbidigo // the time of a synctest bubble
		synctest.Wait()
		require.Zero(t, topics(), "nothing is remembered afterwards")
	})
}

func TestBlame_memory_is_bounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{FailuresInRow: 5, ProbeMin: time.Hour, ProbeMax: time.Hour, OutageLimit: 24 * time.Hour}, func() {})
		defer c.Stop()
		fail := func(id int) Blame {
			return c.Failed(&spool.Message{Ref: dialect.Ref{ID: int64(id)}, Topic: fmt.Sprint(id % 7)}, c.Again(), 0)
		}
		for id := range 3 * maxFailures {
			require.False(t, fail(id).Counts)
		}
		require.Len(t, c.failures, maxFailures)
		time.Sleep(failureAge + time.Second) //nolint:forbidigo // the time of a synctest bubble
		fail(-1)
		require.Len(t, c.failures, 1, "those of which nothing is heard are forgotten")
		for topic := range 7 {
			c.Succeeded(fmt.Sprint(topic), c.Again(), nil)
		}
		require.Len(t, c.topics, 1, "a healthy topic takes no memory")
	})
}

// A message fails alone, then everything fails until the limit for outages, and then the
// destination comes back a part at a time.
func TestBlame_G7_a_part_has_its_time_after_an_outage_up_to_the_limit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newExchange(t, nil)
		defer x.circuits.Stop()
		first, other, good := x.message("first"), x.message("other"), x.message("good")
		fail := func(m *spool.Message) Blame { return x.circuits.Failed(m, x.circuits.Again(), 0) }
		succeed := func(m *spool.Message) { x.circuits.Succeeded(m.Topic, x.circuits.Again(), []*spool.Message{m}) }
		require.False(t, fail(first).Counts)
		require.False(t, fail(other).Counts)
		succeed(good)
		require.True(t, fail(other).Counts, "others get through")

		time.Sleep(x.config.OutageLimit) //nolint:forbidigo // the time of a synctest bubble
		require.True(t, fail(other).Counts, "the limit has passed")

		succeed(good)
		succeed(first) // it was an outage
		require.False(t, fail(other).Counts, "its part may not be back")
	})
}
