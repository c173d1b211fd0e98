package meter

import (
	"sync"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// topic has the series of a topic that get values with each message. A recorder finds them once,
// and not for each message: the loop of a drainer reports all its outcomes, and finding a series by
// its labels would take a tenth of its time.
type topic struct {
	stored, attempts, latency, circuit *series
	ended                              map[Outcome]*series
	succeeded, failed                  *series // calls
	begun                              sync.Once
}

// topic returns that of a name. There is one for each name that this process has met, as there are
// series.
func (s *Spool) topic(name string) *topic {
	if known, has := s.topics.Load(name); has {
		return known.(*topic) //nolint:forcetypeassert // the map has nothing else
	}
	known, _ := s.topics.LoadOrStore(name, s.newTopic(name))
	return known.(*topic) //nolint:forcetypeassert // the map has nothing else
}

func (s *Spool) newTopic(name string) *topic {
	of := func(i *metrics.Instrument, more ...string) *series {
		return s.recorder.series(i, append([]string{s.kind, s.name, name}, more...)...)
	}
	instrument, operation := instruments.Handled, process
	if s.kind == spool.KindOutbox {
		instrument, operation = instruments.Published, send
	}
	call := func(errorType string) *series {
		return s.recorder.series(instrument, system, operation, name, errorType, s.kind, s.name)
	}
	t := &topic{
		stored: of(instruments.Stored), attempts: of(instruments.Attempts), latency: of(instruments.Latency), circuit: of(instruments.CircuitOpen),
		ended: make(map[Outcome]*series, len(outcomes)), succeeded: call(""), failed: call(unclassified),
	}
	for _, outcome := range outcomes {
		t.ended[outcome] = of(instruments.Ended, string(outcome))
	}
	return t
}

// begin makes the series begin at 0 that count outcomes, and that of the circuit.
func (t *topic) begin() {
	t.begun.Do(func() {
		for _, outcome := range outcomes {
			t.ended[outcome].record(0)
		}
		t.circuit.record(0)
	})
}
