package circuit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Calls that hang return with an error at last. They say nothing of calls that hang later, nor of
// the end of an outage.
func TestCircuits_forget_calls_that_have_returned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{FailuresInRow: 5, ProbeMin: time.Second, ProbeMax: time.Second, Width: 8}, func() {})
		defer c.Stop()
		c.Returned("topic")
		require.Empty(t, c.topics)
		call, _ := c.Begin("topic")
		c.Hung("topic", time.Now(), time.Now(), true)
		_, _ = c.Away("topic", call)
		c.Returned("topic")
		rest(time.Second)
		hangs := probesOf(c)
		rest(time.Second)
		c.Hung("topic", time.Now(), time.Now(), true)
		rest(2 * time.Second)
		require.Empty(t, c.Excluded(), "another probe is allowed, since this one hangs, too")
		_, _ = c.Away("topic", hangs)
		require.Contains(t, c.Outages(), "topic")
		rest(time.Hour)
		require.Contains(t, c.Outages(), "topic", "a call hangs")
		c.Returned("topic")
		rest(time.Hour)
		require.Empty(t, c.Outages(), "no message has tried since")
	})
}

// A probe hangs. It counts as such by when it began, whatever becomes of the other calls that hang.
func TestCircuits_G7_let_another_message_probe_when_a_probe_hangs(t *testing.T) {
	t.Parallel()
	hangs := func(t *testing.T, test func(c *Circuits, first, probe Call, began time.Time)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			c := New(Config{FailuresInRow: 5, ProbeMin: time.Second, ProbeMax: time.Second, Width: 8}, func() {})
			defer c.Stop()
			first, _ := c.Begin("topic")
			c.Hung("topic", time.Now(), time.Now(), true)
			rest(time.Second)
			began := time.Now()
			probe := probesOf(c)
			require.True(t, probe.Probe)
			rest(time.Minute)
			test(c, first, probe, began)
		})
	}
	t.Run("the first call returns before that is noticed", func(t *testing.T) {
		t.Parallel()
		hangs(t, func(c *Circuits, first, _ Call, _ time.Time) {
			_, _ = c.Away("topic", first)
			c.Hung("topic", time.Now(), time.Now(), true) // as many calls hang as before
			rest(time.Second)
			require.Empty(t, c.Excluded())
		})
	})
	t.Run("there was no worker for another one", func(t *testing.T) {
		t.Parallel()
		hangs(t, func(c *Circuits, _, _ Call, _ time.Time) {
			c.Hung("topic", time.Now(), time.Now(), false)
			rest(time.Second)
			require.Equal(t, []string{"topic"}, c.Excluded())
			c.Hung("topic", time.Now(), time.Now(), true)
			rest(time.Second)
			require.Empty(t, c.Excluded())
		})
	})
	t.Run("it has not run for so long", func(t *testing.T) {
		t.Parallel()
		hangs(t, func(c *Circuits, _, probe Call, began time.Time) {
			c.Hung("topic", time.Now(), began, true) // others do
			rest(time.Second)
			require.Equal(t, []string{"topic"}, c.Excluded())
			c.Succeeded("topic", probe, nil)
			require.False(t, c.Open("topic"))
		})
	})
}

// A call never returns, and others succeed. It pauses its topic once, and not each time that it is
// found again. Another call that hangs does.
func TestCircuits_G7_a_call_that_never_returns_pauses_its_topic_once(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{FailuresInRow: 5, ProbeMin: time.Second, ProbeMax: time.Second, Width: 8}, func() {})
		defer c.Stop()
		hangs := func(since time.Time) {
			rest(time.Minute)
			c.Hung("topic", since, time.Now(), true)
		}
		works := func() {
			rest(time.Second)
			c.Succeeded("topic", probesOf(c), nil)
			require.False(t, c.Open("topic"))
		}
		_, _ = c.Begin("topic")
		began := time.Now()
		hangs(began)
		require.Contains(t, c.Outages(), "topic")
		works()
		for range 3 {
			hangs(began)
			require.Empty(t, c.Outages())
			require.False(t, probesOf(c).Probe)
			works()
		}
		another, _ := c.Begin("topic")
		later := time.Now()
		hangs(later)
		require.Contains(t, c.Outages(), "topic")
		c.Succeeded("topic", another, nil)
		hangs(began)
		require.Empty(t, c.Outages(), "the other one still hangs")
		c.Returned("topic")
		require.Empty(t, c.topics, "a healthy topic takes no memory")
	})
}

// A forwarder stops while a call hangs. The call fails after that, and must not begin an outage.
func TestCircuits_tell_nothing_after_they_have_stopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told tellings
		c := New(Config{FailuresInRow: 5, ProbeMin: time.Second, ProbeMax: time.Second, Width: 8, Changed: told.changed}, func() {})
		defer c.Stop()
		first, second := probesOf(c), probesOf(c)
		c.Hung("topic", time.Now(), time.Now(), true)
		c.Stop()
		require.Equal(t, []bool{true, false}, told.all())
		c.Succeeded("topic", first, nil)
		_, _ = c.Away("topic", second)
		rest(time.Hour)
		require.Equal(t, []bool{true, false}, told.all())
	})
}
