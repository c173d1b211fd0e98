package circuit

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

func unknownFailure(c *Circuits, id int64, call Call) Blame {
	return c.Failed(&spool.Message{Ref: dialect.Ref{ID: id}, Topic: "topic"}, call, 0)
}

// probes begins as many calls as are allowed.
func probes(c *Circuits) (calls []Call) {
	for {
		call, allowed := c.Begin("topic")
		if !allowed {
			return calls
		}
		calls = append(calls, call)
	}
}

func TestCircuits_pause_doubles_exactly_between_its_bounds_and_one_message_probes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{FailuresInRow: 5, ProbeMin: 100 * time.Millisecond, ProbeMax: 500 * time.Millisecond, Width: 8}, func() {})
		defer c.Stop()
		call, allowed := c.Begin("topic")
		require.True(t, allowed)
		first, wait := c.Away("topic", call)
		require.True(t, first, "a known outage opens the circuit at once")
		require.Zero(t, wait)
		for _, want := range []time.Duration{100, 200, 400, 500, 500} {
			began := time.Now()
			require.Equal(t, []string{"topic"}, c.Excluded())
			require.Empty(t, probes(c))
			time.Sleep(want*time.Millisecond - time.Nanosecond)                                   //nolint:durationcheck,forbidigo // the number is of that unit
			require.Empty(t, probes(c), "not before the pause of %s ends", want*time.Millisecond) //nolint:durationcheck // the number is of that unit
			time.Sleep(time.Nanosecond)                                                           //nolint:forbidigo // the time of a synctest bubble
			require.Empty(t, c.Excluded())
			calls := probes(c)
			require.Len(t, calls, 1)
			require.True(t, calls[0].Probe)
			require.Equal(t, want*time.Millisecond, time.Since(began)) //nolint:durationcheck // the number is of that unit
			_, wait := c.Away("topic", calls[0])
			require.Positive(t, wait, "the next probe is another message")
		}
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the time of a synctest bubble
		c.Succeeded("topic", probes(c)[0], nil)
		require.Empty(t, c.topics, "a healthy topic takes no memory")
		require.False(t, probesOf(c).Probe)
	})
}

func probesOf(c *Circuits) Call {
	call, _ := c.Begin("topic")
	return call
}

func TestCircuits_more_messages_probe_if_the_reason_is_unknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		again := make(chan struct{}, 100)
		c := New(Config{
			FailuresInRow: 3, ProbeMin: time.Second, ProbeMax: 10 * time.Second, Width: 6, OutageLimit: time.Hour,
		}, func() { again <- struct{}{} })
		defer c.Stop()
		for id := range int64(3) {
			require.Equal(t, id == 2, unknownFailure(c, id, probesOf(c)).Opened)
		}
		id := int64(10)
		for i, width := range []int{1, 2, 4, 6, 6, 6} {
			began := time.Now()
			<-again
			require.Equal(t, []time.Duration{1, 1, 1, 1, 2, 4}[i]*time.Second, time.Since(began)) //nolint:durationcheck // the number is of that unit
			calls := probes(c)
			require.Len(t, calls, width)
			for _, call := range calls {
				id++
				require.False(t, unknownFailure(c, id, call).Opened, "it is open")
			}
			require.Empty(t, probes(c))
		}
		<-again
		calls := probes(c)
		c.End("topic", calls[0])
		require.Len(t, probes(c), 1, "a message at fault for a known reason gives its turn to another one")
		c.End("topic", calls[0])
		c.Away("topic", calls[1])
		c.End("topic", calls[1])
		require.Empty(t, probes(c), "it gives its turn once, and only if nothing else was said of it")
		c.Succeeded("topic", calls[2], nil)
		require.False(t, c.Open("topic"))
	})
}

// Calls that were under way when the circuit opened are no probes, whatever becomes of them.
func TestCircuits_a_call_that_began_before_the_outage_neither_ends_nor_prolongs_it(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{FailuresInRow: 1, ProbeMin: time.Second, ProbeMax: time.Minute}, func() {})
		defer c.Stop()
		before := []Call{probesOf(c), probesOf(c), probesOf(c)}
		first, _ := c.Away("topic", before[0])
		require.True(t, first)
		first, wait := c.Away("topic", before[1])
		require.False(t, first)
		require.Zero(t, wait)
		c.Succeeded("topic", before[2], nil)
		require.True(t, c.Open("topic"))
		rest(time.Second)
		require.Len(t, probes(c), 1)
		c.Away("topic", before[1])
		require.Empty(t, c.Excluded()[1:], "the probe is still under way")
		require.Equal(t, time.Second, c.topics["topic"].pause)
	})
}

// Evidence from before a success may be left where a message failed while the call that got through
// was under way.
func TestCircuits_a_message_with_an_attempt_opens_no_circuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{FailuresInRow: 2, ProbeMin: time.Second, ProbeMax: time.Minute, Width: 2, OutageLimit: time.Hour}, func() {})
		defer c.Stop()
		before := []Call{probesOf(c), probesOf(c), probesOf(c)}
		require.False(t, unknownFailure(c, 1, before[0]).Opened)
		require.True(t, unknownFailure(c, 2, before[1]).Opened)
		rest(time.Second)
		good := probesOf(c)
		unknownFailure(c, 3, before[2])
		c.Succeeded("topic", good, nil)
		require.False(t, c.Open("topic"))
		counted := &spool.Message{Ref: dialect.Ref{ID: 4}, Topic: "topic", Attempts: 1}
		require.False(t, c.Failed(counted, probesOf(c), 0).Opened)
		require.False(t, c.Open("topic"))
		require.True(t, unknownFailure(c, 5, probesOf(c)).Opened, "one that has none is further evidence")
	})
}

func TestCircuits_with_an_outage_let_one_message_probe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{FailuresInRow: 1, ProbeMin: time.Second, ProbeMax: time.Minute}, func() {})
		defer c.Stop()
		away := func() (first bool) {
			call, allowed := c.Begin("queue")
			require.True(t, allowed)
			first, _ = c.Away("queue", call)
			return first
		}
		closed := func() {
			_, allowed := c.Begin("queue")
			require.False(t, allowed)
		}
		require.True(t, away())
		closed()
		rest(time.Second)
		require.False(t, away())
		closed()
		rest(time.Second)
		closed()
		rest(time.Second)
		_, allowed := c.Begin("queue")
		require.True(t, allowed)
		closed()
		c.Reached("queue")
		_, allowed = c.Begin("queue")
		require.True(t, allowed)
		require.Empty(t, c.topics)
	})
}

// A message whose publisher fails again and again opens no circuit by itself. An operator reads
// about it all the same, once, within a minute.
func TestCircuits_reports_lasting_failures_that_open_no_circuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{FailuresInRow: 5, ProbeMin: time.Second, ProbeMax: 3 * time.Minute, Width: 1, OutageLimit: time.Hour}, func() {})
		defer c.Stop()
		fails := func() (reports int, last time.Duration) {
			for began := time.Now(); time.Since(began) < 10*time.Minute; {
				blame := unknownFailure(c, 1, probesOf(c))
				require.False(t, blame.Opened)
				if blame.Lasting {
					reports, last = reports+1, time.Since(began)
				}
				time.Sleep(blame.After) //nolint:forbidigo // the time of a synctest bubble
			}
			return reports, last
		}
		for range 2 {
			reports, after := fails()
			require.Equal(t, 1, reports)
			require.GreaterOrEqual(t, after, lasting)
			require.LessOrEqual(t, after, time.Minute)
			one := []*spool.Message{{Ref: dialect.Ref{ID: 1}, Topic: "topic"}}
			require.True(t, c.Succeeded("topic", probesOf(c), one), "the end is reported, too")
			require.False(t, c.Succeeded("topic", probesOf(c), one))
		}
	})
}

// tellings keep what circuits tell of outages.
type tellings struct {
	mu      sync.Mutex
	changes []bool
}

func (o *tellings) changed(_ string, open bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes = append(o.changes, open)
}

func (o *tellings) all() []bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.changes)
}

// rest lets timers run that are due within a time.
func rest(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the time of a synctest bubble
	synctest.Wait()
}

// Operators have buried the last message of a topic, or other processes have the rest: nothing can
// try whether its outage is over.
func TestCircuits_tell_of_no_outage_that_no_message_has_tried_for_long(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 500 * time.Millisecond
		var told tellings
		c := New(Config{FailuresInRow: 5, ProbeMin: most, ProbeMax: most, Width: 8, Changed: told.changed}, func() {})
		defer c.Stop()
		call, _ := c.Begin("topic")
		first, _ := c.Away("topic", call)
		require.True(t, first)
		rest(2 * most)
		for range 3 { // messages that wait for as long as they may keep it
			require.Contains(t, c.Outages(), "topic")
			c.Away("topic", probes(c)[0])
			rest(2*most + most/2)
		}
		require.Equal(t, []bool{true}, told.all())
		probe := probes(c)[0]
		rest(10 * most)
		require.Contains(t, c.Outages(), "topic", "a call that has not returned is a try")
		c.End("topic", probe) // the message was at fault, and was the last one
		rest(2 * most)
		require.Empty(t, c.Outages())
		require.Equal(t, []bool{true, false}, told.all())
		require.True(t, c.Open("topic"), "nothing shows that the topic is back")

		probe = probes(c)[0]
		require.True(t, probe.Probe, "the next message tries it")
		require.Empty(t, c.Outages(), "nothing is known yet")
		first, _ = c.Away("topic", probe)
		require.True(t, first, "the outage of then may have been over")
		require.Equal(t, map[string]time.Time{"topic": time.Now()}, c.Outages())
		require.Equal(t, []bool{true, false, true}, told.all())
		rest(4 * most)
		require.Empty(t, c.Outages())
		c.Succeeded("topic", probes(c)[0], nil)
		require.Empty(t, c.Outages())
		require.False(t, c.Open("topic"))
		require.Equal(t, []bool{true, false, true, false}, told.all(), "it is told once each time, and a success tells nothing")
		require.Empty(t, c.topics)
	})
}

// The database is away too, so no message can be read that would try the topic. That says nothing
// about the topic.
func TestCircuits_tell_of_an_outage_while_no_message_can_be_read(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 30 * time.Second
		var told tellings
		c := New(Config{FailuresInRow: 5, ProbeMin: most, ProbeMax: most, Width: 8, Changed: told.changed}, func() {})
		defer c.Stop()
		call, _ := c.Begin("topic")
		c.Away("topic", call)
		began := time.Now()
		for range 600 {
			rest(time.Second)
			c.Unread()
		}
		require.Equal(t, map[string]time.Time{"topic": began}, c.Outages())
		rest(2*most - time.Second)
		require.Contains(t, c.Outages(), "topic", "messages have as long to try it as after a pause")
		c.Away("topic", probesOf(c))
		require.Equal(t, map[string]time.Time{"topic": began}, c.Outages(), "it is the same outage")
		require.Equal(t, []bool{true}, told.all())

		rest(3 * most)
		require.Empty(t, c.Outages(), "no message has tried it")
		c.Unread()
		require.Empty(t, c.Outages())
		require.Equal(t, []bool{true, false}, told.all())
	})
}

// The error of a message may ask for a longer wait than any pause.
func TestCircuits_tell_of_an_outage_as_long_as_its_message_waits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const least = 10 * time.Minute
		var told tellings
		c := New(Config{
			FailuresInRow: 1, ProbeMin: time.Second, ProbeMax: 30 * time.Second, Width: 8, OutageLimit: OutageLimit,
			Changed: told.changed,
		}, func() {})
		defer c.Stop()
		m := &spool.Message{Ref: dialect.Ref{ID: 1}, Topic: "topic"}
		call, _ := c.Begin("topic")
		for range 6 {
			require.GreaterOrEqual(t, c.Failed(m, call, least).After, least)
			c.Unread() // which does not shorten the wait
			rest(least)
			call = probesOf(c)
		}
		require.Equal(t, []bool{true}, told.all())
		c.End("topic", call) // it was buried
		rest(least)
		require.Equal(t, []bool{true, false}, told.all())
	})
}

// An operator knows that what was away is back.
func TestCircuits_are_tried_at_once_if_somebody_says_so(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		again := 0
		c := New(Config{FailuresInRow: 5, ProbeMin: time.Hour, ProbeMax: time.Hour, Width: 8}, func() { again++ })
		defer c.Stop()
		require.Empty(t, c.Tries())
		call, _ := c.Begin("topic")
		c.Away("topic", call)
		require.Equal(t, map[string]time.Time{"topic": time.Now().Add(time.Hour)}, c.Tries())
		require.Empty(t, probes(c))
		c.Hurry()
		require.Equal(t, 1, again)
		require.Empty(t, c.Excluded())
		require.Empty(t, c.Tries(), "a message may be trying")
		tries := probes(c)
		require.Len(t, tries, 1, "one message tries")
		c.Hurry()
		require.Empty(t, probes(c), "it is still trying")
		c.Away("topic", tries[0])
		require.Empty(t, probes(c), "it waits again")
		require.Equal(t, map[string]time.Time{"topic": time.Now().Add(time.Hour)}, c.Tries())
		c.Hurry()
		c.Succeeded("topic", probes(c)[0], nil)
		require.False(t, c.Open("topic"))
	})
}
