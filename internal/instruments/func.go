package instruments

import "github.com/postbox-go/watermill-postbox/metrics"

// RecorderFunc is a function that is a recorder.
type RecorderFunc func(instrument *metrics.Instrument, value float64, labels ...string)

// Record calls the function.
func (f RecorderFunc) Record(instrument *metrics.Instrument, value float64, labels ...string) {
	f(instrument, value, labels...)
}

// SeriesFunc is a function that is a series of a recorder.
type SeriesFunc func(value float64)

// Record calls the function.
func (f SeriesFunc) Record(value float64) { f(value) }

// RecordAll calls the function for each value.
func (f SeriesFunc) RecordAll(values []float64) {
	for _, value := range values {
		f(value)
	}
}
