package circuit

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// exchange is a broker with its forwarder, without a database and in simulated time: the circuits
// decide about each message as they do in a relay, ready messages go before those that wait, and
// each call takes a while.
type exchange struct {
	t        *testing.T
	circuits *Circuits
	config   Config
	retry    postbox.RetryProfile
	workers  int
	took     time.Duration
	broken   func(m *spool.Message) bool

	began   time.Time
	ready   []*spool.Message
	waiting []timed // by time
	calls   []timed // under way, by time of their end
	tries   map[string]int
	done    map[string]time.Duration // when it got through
	dead    map[string]time.Duration
	counted map[string]time.Duration                      // when its first attempt was counted
	waits   map[string]int                                // failures in a row that did not count
	feed    func() (next time.Duration, m *spool.Message) // the next message, and the time until the one after it
}

type timed struct {
	at      time.Time
	message *spool.Message
	call    Call
}

func newExchange(t *testing.T, broken func(m *spool.Message) bool) *exchange {
	t.Helper()
	config := Config{
		FailuresInRow: 5, ProbeMin: 100 * time.Millisecond, ProbeMax: 30 * time.Second, Width: 64, OutageLimit: 24 * time.Hour,
	}
	return &exchange{
		t: t, config: config, circuits: New(config, func() {}), workers: 64, took: 5 * time.Millisecond, broken: broken,
		retry: retries.WithDefaults(postbox.RetryProfile{}, 10), began: time.Now(),
		tries: map[string]int{}, done: map[string]time.Duration{}, dead: map[string]time.Duration{},
		counted: map[string]time.Duration{}, waits: map[string]int{},
	}
}

func (x *exchange) now() time.Duration { return time.Since(x.began) }

// put adds messages of the given kind.
func (x *exchange) put(kind string, n int) {
	for range n {
		x.ready = append(x.ready, x.message(kind))
	}
}

func (x *exchange) message(kind string) *spool.Message {
	id := len(x.tries) + 1
	name := fmt.Sprintf("%s %d", kind, id)
	x.tries[name] = 0
	return &spool.Message{Ref: dialect.Ref{ID: int64(id)}, Topic: "topic", MessageID: name}
}

func poisonous(m *spool.Message) bool { return len(m.MessageID) > 6 && m.MessageID[:6] == "poison" }

// run goes on until the time has come or nothing is left.
func (x *exchange) run(until time.Duration) {
	var next time.Time
	for x.now() < until {
		if x.feed != nil && !time.Now().Before(next) {
			pause, m := x.feed()
			if m != nil {
				x.ready = append(x.ready, m)
			}
			next = time.Now().Add(pause)
		}
		for len(x.waiting) > 0 && !time.Now().Before(x.waiting[0].at) {
			x.ready = append(x.ready, x.waiting[0].message)
			x.waiting = x.waiting[1:]
		}
		for len(x.ready) > 0 && len(x.calls) < x.workers {
			call, allowed := x.circuits.Begin("topic")
			if !allowed {
				break
			}
			x.calls = append(x.calls, timed{at: time.Now().Add(x.took), message: x.ready[0], call: call})
			x.ready = x.ready[1:]
		}
		wake := x.began.Add(until)
		for _, at := range []*time.Time{x.feedAt(&next), first(x.waiting), first(x.calls), x.probeAt()} {
			if at != nil && at.Before(wake) {
				wake = *at
			}
		}
		if len(x.ready)+len(x.waiting)+len(x.calls) == 0 && x.feed == nil {
			return
		}
		time.Sleep(time.Until(wake)) //nolint:forbidigo // simulated: the time of a synctest bubble
		for len(x.calls) > 0 && !time.Now().Before(x.calls[0].at) {
			ended := x.calls[0]
			x.calls = x.calls[1:]
			x.end(ended.message, ended.call)
		}
	}
}

func (x *exchange) feedAt(next *time.Time) *time.Time {
	if x.feed == nil {
		return nil
	}
	return next
}

func first(list []timed) *time.Time {
	if len(list) == 0 {
		return nil
	}
	return &list[0].at
}

// probeAt is when a probe is wanted, if something is there for it.
func (x *exchange) probeAt() *time.Time {
	state := x.circuits.topics["topic"]
	if state == nil || !state.open || !time.Now().Before(state.until) || len(x.ready) == 0 {
		return nil
	}
	return &state.until
}

// end settles a message as a relay and a drainer do.
func (x *exchange) end(m *spool.Message, call Call) {
	x.tries[m.MessageID]++
	if !x.broken(m) {
		x.circuits.Succeeded("topic", call, []*spool.Message{m})
		x.done[m.MessageID] = x.now()
		return
	}
	blame := x.circuits.Failed(m, call, 0)
	wait := blame.After
	if blame.Counts {
		x.waits[m.MessageID] = 0
		if m.Attempts++; m.Attempts == 1 {
			x.counted[m.MessageID] = x.now()
		}
		if retries.Exhausted(x.retry, m.Attempts) {
			x.dead[m.MessageID] = x.now()
			return
		}
		wait = retries.Delay(x.retry, m.Attempts)
	} else {
		// The message makes room for others, for longer each time.
		longest := x.config.ProbeMax
		if n := x.waits[m.MessageID]; n < 16 {
			longest = min(x.config.ProbeMin<<n, longest)
		}
		x.waits[m.MessageID]++
		require.GreaterOrEqual(x.t, wait, max(longest/2, x.config.ProbeMin))
		require.LessOrEqual(x.t, wait, longest)
	}
	w := timed{at: time.Now().Add(wait), message: m}
	at, _ := slices.BinarySearchFunc(x.waiting, w, func(a, b timed) int { return a.at.Compare(b.at) })
	x.waiting = slices.Insert(x.waiting, at, w)
}

// latest returns when the last message of a kind ended, and how many there are.
func latest(ended map[string]time.Duration, kind string) (at time.Duration, n int) {
	for name, when := range ended {
		if len(name) > len(kind) && name[:len(kind)] == kind {
			at, n = max(at, when), n+1
		}
	}
	return at, n
}

func TestBlame_healthy_messages_behind_many_poisonous_ones_get_through_at_once(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newExchange(t, poisonous)
		x.workers, x.config.Width = 8, 8
		x.circuits = New(x.config, func() {})
		x.put("poison", 40)
		x.put("good", 20)
		x.run(time.Minute)
		at, n := latest(x.done, "good")
		require.Equal(t, 20, n)
		require.Less(t, at, 20*x.config.ProbeMin, "eight probe at a time, and five such rounds are enough for all that stand before them")
		require.Empty(t, x.dead)
	})
}

// Until another message gets through, poison looks like an outage, whose pauses double: a message
// that comes after a silence waits for no longer than the silence lasted. When each poisonous
// message has an attempt it is no evidence of an outage any more, and delays none.
func TestBlame_poison_messages_end_while_others_get_through_with_little_delay(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{
		"a message a second": time.Second, "one every 20 seconds": 20 * time.Second, "one every 5 minutes": 5 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := newExchange(t, poisonous)
				x.put("poison", 50)
				sent := map[string]time.Duration{}
				x.feed = func() (time.Duration, *spool.Message) {
					m := x.message("good")
					sent[m.MessageID] = x.now()
					return pause, m
				}
				x.run(2 * time.Hour)
				_, n := latest(x.dead, "poison")
				require.Equal(t, 50, n)
				require.Len(t, x.dead, 50)
				require.Len(t, x.counted, 50)
				allCounted, _ := latest(x.counted, "poison")
				require.Less(t, allCounted, 10*pause, "a few signs of life are enough")
				for id, at := range x.done {
					waited := at - sent[id]
					require.LessOrEqual(t, waited, min(pause, x.config.ProbeMax)+x.config.ProbeMin, id)
					if sent[id] > allCounted+pause { // the one before it has ended the outage
						require.Equal(t, x.took, waited, "%s: nothing stands in its way", id)
					}
				}
			})
		})
	}
}

func TestBlame_poison_messages_alone_end_after_the_limit_and_not_before(t *testing.T) {
	t.Parallel()
	for _, many := range []int{1, 3, 10, 300} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := newExchange(t, poisonous)
				x.put("poison", many)
				x.run(x.config.OutageLimit)
				require.Empty(t, x.dead)
				x.run(x.config.OutageLimit + time.Hour)
				require.Len(t, x.dead, many)
			})
		})
	}
}

func TestBlame_a_lone_poisonous_message_ends_after_one_failure_more_than_its_attempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newExchange(t, poisonous)
		x.retry.Jitter = -1 // with jitter two attempts may have no good message between them, and the second counts for nothing
		x.put("poison", 1)
		x.feed = func() (time.Duration, *spool.Message) { return 10 * time.Millisecond, x.message("good") }
		x.run(10 * time.Minute)
		require.Len(t, x.dead, 1)
		require.Equal(t, x.retry.Attempts+1, x.tries["poison 1"])
	})
}

func TestBlame_G7_an_outage_with_unknown_errors_makes_no_dead_letter(t *testing.T) {
	t.Parallel()
	for _, many := range []int{1, 3, 300} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const lasts = 8 * time.Hour
				var x *exchange
				x = newExchange(t, func(*spool.Message) bool { return x.now() < lasts })
				x.put("good", many)
				x.run(lasts + time.Hour)
				require.Empty(t, x.dead)
				at, n := latest(x.done, "good")
				require.Equal(t, many, n)
				require.LessOrEqual(t, at, lasts+2*x.config.ProbeMax)
			})
		})
	}
}

// The pause of a message doubles with each failure, and a long outage has many of them.
func TestBlame_G7_long_outage_with_a_long_first_pause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lasts = 24 * time.Hour
		var x *exchange
		x = newExchange(t, func(*spool.Message) bool { return x.now() < lasts-time.Hour })
		x.config.ProbeMin = 10 * time.Second
		x.circuits = New(x.config, func() {})
		x.put("good", 1)
		x.run(lasts)
		require.Greater(t, x.tries["good 1"], 64)
		require.Len(t, x.done, 1)
	})
}

// A call may begin before a failure and get through after it.
func TestBlame_G7_a_message_that_gets_through_ends_a_long_outage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newExchange(t, poisonous)
		defer x.circuits.Stop()
		fail := func(kind string) Blame { return x.circuits.Failed(x.message(kind), x.circuits.Again(), 0) }
		require.False(t, fail("first").Counts)
		time.Sleep(x.config.OutageLimit) //nolint:forbidigo // the time of a synctest bubble
		call := x.circuits.Again()
		require.True(t, fail("second").Counts, "nothing has got through for so long")
		x.circuits.Succeeded("topic", call, []*spool.Message{x.message("third")})
		require.False(t, fail("fourth").Counts)
	})
}

// A broker that is there for a second and away for a second: messages fail together in each outage,
// and when one of them gets through the failures of the others are known to be those of an outage.
func TestBlame_G7_flapping_broker_makes_no_dead_letter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var x *exchange
		x = newExchange(t, func(m *spool.Message) bool { return poisonous(m) || x.now()/time.Second%2 == 1 })
		x.put("poison", 3)
		sent := 0
		x.feed = func() (time.Duration, *spool.Message) {
			switch sent++; {
			case sent <= 20_000:
				return 5 * time.Millisecond, x.message("good")
			case x.now() < 20*time.Minute:
				return 100 * time.Millisecond, x.message("good")
			default:
				return time.Hour, nil
			}
		}
		x.run(30 * time.Minute)
		_, poison := latest(x.dead, "poison")
		require.Equal(t, 3, poison, "poison ends all the same")
		require.Len(t, x.dead, 3)
		require.Len(t, x.done, len(x.tries)-3)
	})
}

// After the outage the broker comes back a partition at a time, as with a client that looks for
// each partition by itself. The attempts are so few that they would be used up at once.
func TestBlame_G7_broker_that_comes_back_in_parts_makes_no_dead_letter(t *testing.T) {
	t.Parallel()
	for _, many := range []int{3, 300, 3000} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const lasts, partitions, apart = 15 * time.Second, 6, 4 * time.Second
				var x *exchange
				x = newExchange(t, func(m *spool.Message) bool {
					back := lasts + time.Duration(m.Ref.ID%partitions)*apart
					return poisonous(m) || x.now() < back
				})
				x.config.ProbeMin, x.config.ProbeMax = 20*time.Millisecond, 200*time.Millisecond
				x.retry = postbox.RetryProfile{Attempts: 3, Base: 10 * time.Millisecond, Cap: 20 * time.Millisecond}
				x.circuits = New(x.config, func() {})
				x.put("good", many)
				x.put("poison", 1)
				x.feed = func() (time.Duration, *spool.Message) { return 100 * time.Millisecond, x.message("good") }
				x.run(lasts + partitions*apart)
				require.Empty(t, x.dead)
				x.run(lasts + partitions*apart + 2*recovery)
				require.Len(t, x.dead, 1, "poison ends all the same")
			})
		})
	}
}

// A broker that now and then refuses a message and takes it a moment later never stops to prove
// that its errors are its own.
func TestBlame_poison_messages_end_although_the_broker_often_fails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var x *exchange
		x = newExchange(t, func(m *spool.Message) bool { return poisonous(m) || m.Ref.ID%3 == 0 && x.tries[m.MessageID] == 1 })
		x.put("poison", 5)
		x.feed = func() (time.Duration, *spool.Message) { return 100 * time.Millisecond, x.message("good") }
		x.run(time.Hour)
		_, poison := latest(x.dead, "poison")
		require.Equal(t, 5, poison)
		require.Len(t, x.dead, 5)
	})
}
