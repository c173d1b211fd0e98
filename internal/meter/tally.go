package meter

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Tally reports the outcomes of the messages of a settlement, after their commit. Messages of a
// settlement mostly have one topic and one outcome, so these are reported together: the loop of a
// drainer does this for each message. A nil Tally reports nothing. It is for one goroutine.
type Tally struct {
	spool   *Spool
	now     time.Time
	name    string
	topic   *topic // that of the name
	outcome Outcome
	same    int // messages with this topic and outcome that have not been reported

	attempts, latencies values // of these messages
}

// values are up to maxTogether numbers. They are a part of the tally, which is then one allocation.
type values struct {
	list [maxTogether]float64
	n    int
}

func (v *values) add(value float64) {
	v.list[v.n] = value
	v.n++
}

func (v *values) report(to *series) {
	if v.n > 0 {
		to.recordAll(v.list[:v.n])
		v.n = 0
	}
}

// maxTogether is how many messages are reported together.
const maxTogether = 64

// Tally begins a tally of messages that were settled at a time, by the clock of the database.
func (s *Spool) Tally(now time.Time) *Tally {
	if s == nil {
		return nil
	}
	return &Tally{spool: s, now: now}
}

// Ended adds the outcome of a message.
func (t *Tally) Ended(m *spool.Message, outcome Outcome) {
	if t == nil {
		return
	}
	if t.topic == nil || t.name != m.Topic || t.outcome != outcome || t.same == maxTogether {
		t.Report()
		t.name, t.topic, t.outcome = m.Topic, t.spool.topic(m.Topic), outcome
		t.topic.begin()
	}
	t.same++
	if outcome == Done || outcome == Dead {
		t.attempts.add(float64(m.Attempts + 1))
	}
	if outcome == Done && m.NeverWaited() {
		t.latencies.add(max(t.now.Sub(m.CreatedAt), 0).Seconds())
	}
}

// Report reports what has been added and not reported.
func (t *Tally) Report() {
	if t == nil || t.same == 0 {
		return
	}
	t.attempts.report(t.topic.attempts)
	t.latencies.report(t.topic.latency)
	t.topic.ended[t.outcome].record(float64(t.same))
	t.same = 0
}
