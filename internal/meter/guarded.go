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
	if given.Nil(recorder) {
		return nil
	}
	if _, is := recorder.(*guarded); is {
		return recorder
	}
	return &guarded{Recorder: recorder, logger: logger}
}

// Record calls the recorder.
func (g *guarded) Record(instrument *metrics.Instrument, value float64, labels ...string) {
	defer func() {
		if reason := recover(); reason != nil {
			g.once.Do(func() {
				g.logger.Error("Postbox goes on without a measurement: the recorder in Database.Metrics panicked", fmt.Errorf("panic: %v", reason),
					watermill.LogFields{"instrument": instrument.Name})
			})
		}
	}()
	g.Recorder.Record(instrument, value, labels...)
}
