package meter

import (
	"sync"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// topic has the series of a topic that get values with each message. A recorder finds them once, and not for each
// message: the loop of a drainer reports all its outcomes, and finding a series by its labels would take a tenth of its
// time.
type topic struct {
	stored, attempts, latency, circuit func(value float64)
	ended                              map[Outcome]func(value float64)
	succeeded, failed                  func(value float64) // calls
	begun                              sync.Once
}

// topic returns that of a name. There is one for each name that this process has met, as there are series.
func (s *Spool) topic(name string) *topic {
	if known, has := s.topics.Load(name); has {
		return known.(*topic) //nolint:forcetypeassert // the map has nothing else
	}
	known, _ := s.topics.LoadOrStore(name, s.newTopic(name))
	return known.(*topic) //nolint:forcetypeassert // the map has nothing else
}

func (s *Spool) newTopic(name string) *topic {
	series := func(i *metrics.Instrument, more ...string) func(float64) {
		return s.recorder.Series(i, append([]string{s.kind, s.name, name}, more...)...)
	}
	instrument, operation := metrics.Handled, process
	if s.kind == spool.KindOutbox {
		instrument, operation = metrics.Published, send
	}
	call := func(errorType string) func(float64) {
		return s.recorder.Series(instrument, system, operation, name, errorType, s.kind, s.name)
	}
	t := &topic{
		stored: series(metrics.Stored), attempts: series(metrics.Attempts), latency: series(metrics.Latency), circuit: series(metrics.CircuitOpen),
		ended: make(map[Outcome]func(float64), len(outcomes)), succeeded: call(""), failed: call(unclassified),
	}
	for _, outcome := range outcomes {
		t.ended[outcome] = series(metrics.Ended, string(outcome))
	}
	return t
}

// begin makes the series begin at 0 that count outcomes, and that of the circuit.
func (t *topic) begin() {
	t.begun.Do(func() {
		for _, outcome := range outcomes {
			t.ended[outcome](0)
		}
		t.circuit(0)
	})
}
