package circuit

import (
	"math/rand/v2"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// If the reason of a failure is unknown, either the message or the destination is at fault. The
// result must be right in both cases: an outage buries no message, however few wait, and a message
// that can never be published eventually stops being retried.
//
// The rule needs a sign of life: another message that succeeded. A failure of a message counts as
// an attempt under two conditions. Since its previous failure, another message to the same topic
// succeeded. And none of the messages that failed together with it at that time succeeded later,
// which would prove that it was an outage. Failures are together if no message succeeded between
// them. If no message at all succeeds for OutageLimit, each failure counts.
//
// A destination may recover one part at a time: each of Kafka's partitions by itself, or one server
// of several. So after such a proof each message has a time of its own, recovery, in which its
// failures do not count although others succeed. That time ends even if new proofs keep coming, for
// example from a broker that now and then refuses a message which it accepts a moment later.
//
// A message whose failure does not count waits for a pause of its own, from ProbeMin to ProbeMax,
// so that other messages are tried first. If different messages fail without counting, one after
// the other and without a success, the circuit opens. Messages with counted attempts are no
// evidence of an outage.
//
// All of this is known to one process and is lost with it: the next process starts with a failure
// that does not count.

const (
	// maxFailures bounds the number of messages whose failures are remembered. For a message beyond
	// it, no failure counts until there is room: the remembered messages are finished first.
	maxFailures = 10_000
	// failureAge is the time after which a message is forgotten if there is no room: another
	// process may have it.
	failureAge = time.Hour
	// recovery is the time within which the last part of a destination recovers after the first
	// one. Common clients take up to ten seconds before they try again (the circuit breaker of
	// Kafka's), and some need more than one try.
	recovery = time.Minute
	// lasting is how long no message must have succeeded on a topic before a failure is reported
	// that does not open the circuit. Pauses between tries double, so the report comes within a
	// minute of the first failure.
	lasting = 20 * time.Second
)

// blame is the state of the failures of a topic.
type blame struct {
	together   *together // the latest failures
	life       int64     // start of the latest call that succeeded
	quietSince time.Time // time of the last success, or of the first failure since then
	proved     time.Time // last success of a message that had failed before: it was an outage
	reported   bool      // failures have been reported since the last success
	remembered int
}

// together is a group of failures without a success between them.
type together struct {
	last     int64 // number of the last failure
	evidence int   // number of different messages whose failure does not count
	outage   bool  // one of the messages succeeded later
}

// failure is the latest failure of a message.
type failure struct {
	topic      string
	at         int64
	seen       time.Time
	together   *together
	waits      int       // number of pauses in a row
	aloneSince time.Time // its first failure while others succeeded, since its last one while none did
}

// Blame says which side is taken to be at fault.
type Blame struct {
	// Counts: the message is at fault, and the failure is an attempt.
	Counts bool
	// After is how long the message waits. If the failure counts, that is what it was given, and
	// the number of attempts may ask for more.
	After time.Duration
	// Opened: the failure has opened the circuit.
	Opened bool
	// Lasting: the circuit is closed, no message has succeeded for a while, and no failure was
	// reported since then.
	Lasting bool
}

// Failed records a failure for an unknown reason. Its message waits for at least so long.
func (c *Circuits) Failed(m *spool.Message, call Call, least time.Duration) Blame {
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
	counts := before.atFault(b, now) || now.Sub(b.quietSince) >= c.config.OutageLimit
	evident := !counts && m.Attempts == 0
	if evident && (before == nil || before.together != b.together) {
		b.together.evidence++
	}
	result := Blame{Counts: counts, After: max(c.remember(m, before, b, now, counts), least)}
	if state.open || evident && b.together.evidence >= c.config.FailuresInRow {
		result.Opened = c.trip(state, call, max(c.config.Width, 1))
	}
	if state.open {
		c.await(state, result.After)
		b.reported = true
	} else if !b.reported && now.Sub(b.quietSince) >= lasting {
		b.reported, result.Lasting = true, true
	}
	return result
}

// atFault reports whether the message is at fault, given its previous failure, which may be nil. It
// is asked at each failure, and so knows for how long the message has failed alone.
func (f *failure) atFault(b *blame, now time.Time) bool {
	switch {
	case f == nil:
		return false
	case b.life <= f.at:
		f.aloneSince = time.Time{}
		return false
	case f.together.outage:
		return false
	case f.aloneSince.IsZero():
		f.aloneSince = now
	}
	return now.Sub(b.proved) >= recovery || now.Sub(f.aloneSince) >= recovery
}

// remember records a failure. It returns how long the message waits if the failure does not count.
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
	// Messages that failed together must not all be tried again at the same time. If that happened
	// during the next outage, no message would show that the first failure was an outage.
	least := max(c.config.ProbeMin, pause/2)
	return least + rand.N(pause-least+1) //nolint:gosec // jitter needs no secrecy
}

// Succeeded records that messages succeeded. That is a sign of life after each failure before the
// call began, and it ends an outage that had begun by then. It reports whether an outage or
// reported failures are over.
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

// forgetOld drops old failures to make room.
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
