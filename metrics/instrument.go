package metrics

// Kind says what the values of an instrument mean.
type Kind int

const (
	// Counter is a sum: each value is added to it, and none is negative.
	Counter Kind = iota
	// Histogram is a distribution of values.
	Histogram
	// Gauge has the last value.
	Gauge
)

// String returns the kind as OpenTelemetry names it.
func (k Kind) String() string {
	switch k {
	case Counter:
		return "counter"
	case Histogram:
		return "histogram"
	default:
		return "gauge"
	}
}

// Instrument is one thing that Postbox measures. Do not change it.
type Instrument struct {
	// Name is the name in OpenTelemetry's form, with dots.
	Name string
	Kind Kind
	// Unit is a unit of UCUM, as in OpenTelemetry: "s" for seconds, or a noun in braces for a
	// number.
	Unit string
	// Labels are the names of the values that a [Recorder] gets with each measurement, in this
	// order. A value that is empty means that there is none.
	Labels []string
	// Buckets are the upper bounds of a histogram's buckets.
	Buckets []float64
	// Help is a sentence for people.
	Help string
	// Database is true if the value is counted in the database, and false if each process reports
	// its own.
	Database bool
}

// Recorder gets measurements. It is called concurrently, by goroutines that process messages: it
// must return fast and must not panic. A recorder adds the value to a counter, puts it into a
// histogram, or sets a gauge to it. It gets one label for each name in the labels of the
// instrument.
type Recorder interface {
	Record(instrument *Instrument, value float64, labels ...string)
}

// SeriesRecorder is a [Recorder] that can look a series up in advance. Postbox asks it once for
// each series of a topic, instead of giving it the labels with each measurement, which costs a
// recorder more than the rest of its work.
type SeriesRecorder interface {
	Recorder
	// Series returns the series with these labels, and must not return nil. It is used as long as
	// the process lives. Series may be called for a series that never gets a value.
	Series(instrument *Instrument, labels ...string) Series
}

// Series gets the measurements of one series, concurrently.
type Series interface {
	// Record records a value, as [Recorder.Record] does.
	Record(value float64)
	// RecordAll records each of several values, as so many calls of Record do. It must not keep the
	// slice.
	RecordAll(values []float64)
}

// SeriesFunc is a function that is a [Series].
type SeriesFunc func(value float64)

// Record calls the function.
func (f SeriesFunc) Record(value float64) { f(value) }

// RecordAll calls the function for each value.
func (f SeriesFunc) RecordAll(values []float64) {
	for _, value := range values {
		f(value)
	}
}

// RecorderFunc is a function that is a [Recorder].
type RecorderFunc func(instrument *Instrument, value float64, labels ...string)

// Record calls the function.
func (f RecorderFunc) Record(instrument *Instrument, value float64, labels ...string) {
	f(instrument, value, labels...)
}
