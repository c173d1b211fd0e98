package circuit

import (
	"math/rand/v2"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Where the reason of a failure is unknown, either the message is at fault or the destination is. Both must come right: an
// outage buries no message, however few wait, and a message that can never be published comes to an end.
//
// The rule needs a sign of life: another message that got through. A failure of a message counts as an attempt if, since its
// failure before, another message to the same topic got through, and none of those that failed together with it back then
// got through later, which would prove that it was an outage. Failures are together if nothing got through between them. If
// nothing at all gets through for OutageLimit, each failure counts.
//
// A destination may come back a part at a time: each of Kafka's partitions by itself, one server of several. So after such a
// proof each message has a time of its own, recovery, in which its failures do not count although others get through. It
// ends even where new proofs keep coming, as from a broker that now and then refuses what it takes a moment later.
//
// A failure that does not count lets the message wait for a pause of its own, from ProbeMin to ProbeMax, so that others have
// their turn. Different messages whose failures do not count, one after the other without a success, open the circuit.
// Messages that were counted against already are no evidence of an outage.
//
// All of this is known to one process and is lost with it: the next one starts with a failure that does not count.

const (
	// maxFailures bounds the messages whose failures are remembered. A message beyond it is not counted against until there
	// is room: those that are remembered come to their end first.
	maxFailures = 10_000
	// failureAge is after how long a message is forgotten when there is no room: another process may have it.
	failureAge = time.Hour
	// recovery is how long the last part of a destination may take to come back after the first one. Stock clients take up to
	// ten seconds to look again (the circuit breaker of Kafka's), and some need more than one look.
	recovery = time.Minute
	// lasting is how long nothing must have got through to a topic when a failure is reported that opens no circuit. Pauses between tries double, so
	// the report comes within a minute of the first failure.
	lasting = 20 * time.Second
)

// blame is what is known of the failures of a topic.
type blame struct {
	together   *together // the latest failures
	life       int64     // when that call began which got through and began last
	quietSince time.Time // when something got through last, or the first failure since then
	proved     time.Time // when a message got through last that had failed: it was an outage
	reported   bool      // since something got through last, the failures were reported
	remembered int
}

// together is failures between which nothing got through.
type together struct {
	last     int64 // of them
	evidence int   // different messages of which the failure does not count
	outage   bool  // one of the messages got through later
}

// failure is the latest failure of a message.
type failure struct {
	topic    string
	at       int64
	seen     time.Time
	together *together
	waits    int       // that followed one another
	accused  time.Time // the first failure with a sign of life, since one without
}

// Blame says whose fault a failure is taken to be.
type Blame struct {
	// Counts: it is the message's fault, and an attempt.
	Counts bool
	// After is how long the message waits where it is not.
	After time.Duration
	// Opened: the failure has opened the circuit.
	Opened bool
	// Lasting: the circuit is closed, nothing has got through for a while, and no failure was reported since then.
	Lasting bool
}

// Failed takes in a failure for an unknown reason.
func (c *Circuits) Failed(m *spool.Message, call Call) Blame {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequence++
	state, now := c.state(m.Topic), c.config.Now()
	b := &state.blame
	if b.together == nil || b.life > b.together.last {
		b.together, b.quietSince = &together{}, now
	}
	b.together.last = c.sequence
	before := c.failures[m.Identity()]
	counts := now.Sub(b.quietSince) >= c.config.OutageLimit || before.accuse(b, now)
	evident := !counts && m.Attempts == 0
	if evident && (before == nil || before.together != b.together) {
		b.together.evidence++
	}
	result := Blame{Counts: counts, After: c.remember(m, before, b, now, counts)}
	if state.open || evident && b.together.evidence >= c.config.FailuresInRow {
		result.Opened = c.trip(state, call, max(c.config.Width, 1))
	}
	if state.open {
		b.reported = true
	} else if !b.reported && now.Sub(b.quietSince) >= lasting {
		b.reported, result.Lasting = true, true
	}
	return result
}

// accuse says whether the message is to blame, after this failure before. There may be none.
func (f *failure) accuse(b *blame, now time.Time) bool {
	switch {
	case f == nil:
		return false
	case b.life <= f.at:
		f.accused = time.Time{}
		return false
	case f.together.outage:
		return false
	case f.accused.IsZero():
		f.accused = now
	}
	return now.Sub(b.proved) >= recovery || now.Sub(f.accused) >= recovery
}

// remember notes a failure and returns how long the message waits, if it does.
func (c *Circuits) remember(m *spool.Message, f *failure, b *blame, now time.Time, counts bool) time.Duration {
	if f == nil {
		f = &failure{topic: m.Topic}
		if len(c.failures) >= maxFailures && now.Sub(c.forgot) > time.Minute {
			c.forgetOld(now)
			c.forgot = now
		}
		if len(c.failures) < maxFailures {
			c.failures[m.Identity()] = f
			b.remembered++
		}
	}
	f.at, f.seen, f.together = c.sequence, now, b.together
	if counts {
		f.waits = 0
		return 0
	}
	pause := c.config.ProbeMax
	if c.config.ProbeMin <= pause>>f.waits {
		pause = c.config.ProbeMin << f.waits
	}
	f.waits++
	// Messages that failed together must not all come back together: if that were in the next outage, none would
	// show what the first one was.
	least := max(c.config.ProbeMin, pause/2)
	return least + rand.N(pause-least+1) //nolint:gosec // jitter needs no secrecy
}

// Succeeded says that messages got through: that is a sign of life after each failure before the call began, and the end of
// an outage that there was by then. It reports whether an outage or failures that were reported are over.
func (c *Circuits) Succeeded(topic string, call Call, batch []*spool.Message) (over bool) {
	c.mu.Lock()
	closed := false
	if state := c.topics[topic]; state != nil {
		state.blame.life = max(state.blame.life, call.start)
		state.blame.quietSince = c.config.Now()
		for _, m := range batch {
			if f := c.failures[m.Identity()]; f != nil {
				f.together.outage, state.blame.proved = true, c.config.Now()
				c.drop(m.Identity(), f)
			}
		}
		closed = call.start > state.since && c.close(topic)
		over = closed || !state.open && state.blame.reported
		state.blame.reported = state.open
		c.forget(topic)
	}
	c.mu.Unlock()
	if closed {
		c.again()
	}
	return over
}

// forgetOld makes room.
func (c *Circuits) forgetOld(now time.Time) {
	for key, f := range c.failures {
		if now.Sub(f.seen) > failureAge {
			c.drop(key, f)
		}
	}
}

func (c *Circuits) drop(key spool.Identity, f *failure) {
	delete(c.failures, key)
	c.topics[f.topic].blame.remembered--
}
