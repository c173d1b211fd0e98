package meter

import (
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// guarded is a recorder that recovers from panics of the one in it, since a panic would end the work that is measured.
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

// Series asks the recorder for the series, if it can look one up, when the first value comes. If that panics, the
// series has no values.
func (g *guarded) Series(instrument *metrics.Instrument, labels ...string) func(value float64) {
	recorder, can := g.Recorder.(metrics.SeriesRecorder)
	if !can {
		return func(value float64) { g.Record(instrument, value, labels...) }
	}
	lookUp := sync.OnceValue(func() func(float64) {
		defer g.recovered(instrument)
		return recorder.Series(instrument, labels...)
	})
	return func(value float64) {
		defer g.recovered(instrument)
		if record := lookUp(); record != nil {
			record(value)
		}
	}
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
