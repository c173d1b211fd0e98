package meter

import (
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// guarded is a recorder that recovers from panics of the one in it, since a panic would end the
// work that is measured.
type guarded struct {
	metrics.Recorder

	logger watermill.LoggerAdapter
	once   sync.Once // the first panic is logged
}

// Guarded returns a recorder that does not panic, nil for none. A nil pointer is none.
func Guarded(recorder metrics.Recorder, logger watermill.LoggerAdapter) metrics.Recorder {
	if g := guard(recorder, logger); g != nil {
		return g
	}
	return nil
}

func guard(recorder metrics.Recorder, logger watermill.LoggerAdapter) *guarded {
	if given.Nil(recorder) {
		return nil
	}
	if g, is := recorder.(*guarded); is {
		return g
	}
	return &guarded{Recorder: recorder, logger: logger}
}

// Record calls the recorder.
func (g *guarded) Record(instrument *metrics.Instrument, value float64, labels ...string) {
	defer g.recovered(instrument)
	g.Recorder.Record(instrument, value, labels...)
}

// series is one of the series of a recorder. It looks for it when the first value comes, so that
// there are no series without values. If that panics, the series has none.
type series struct {
	of         *guarded
	instrument *metrics.Instrument
	labels     []string
	lookUp     sync.Once
	found      metrics.Series
}

func (g *guarded) series(instrument *metrics.Instrument, labels ...string) *series {
	return &series{of: g, instrument: instrument, labels: labels}
}

func (s *series) record(value float64) {
	defer s.of.recovered(s.instrument)
	if s.lookUp.Do(s.find); s.found != nil {
		s.found.Record(value)
	}
}

func (s *series) recordAll(values []float64) {
	defer s.of.recovered(s.instrument)
	if s.lookUp.Do(s.find); s.found != nil {
		s.found.RecordAll(values)
	}
}

func (s *series) find() {
	if recorder, can := s.of.Recorder.(metrics.SeriesRecorder); can {
		s.found = recorder.Series(s.instrument, s.labels...)
		return
	}
	s.found = instruments.SeriesFunc(func(value float64) { s.of.Recorder.Record(s.instrument, value, s.labels...) })
}

// recovered is deferred around each call of the recorder.
func (g *guarded) recovered(instrument *metrics.Instrument) {
	if reason := recover(); reason != nil {
		g.once.Do(func() {
			g.logger.Error("Postbox goes on without a measurement: the recorder in Database.Metrics panicked", fmt.Errorf("panic: %v", reason),
				watermill.LogFields{"instrument": instrument.Name})
		})
	}
}
