package metrics

// Kind says what the values of an instrument mean.
type Kind string

// The kinds of instruments, as OpenTelemetry names them.
const (
	// Counter is a sum: each value is added to it, and none is negative.
	Counter Kind = "counter"
	// Histogram is a distribution of values.
	Histogram Kind = "histogram"
	// Gauge has the last value.
	Gauge Kind = "gauge"
)

// Instrument is one thing that Postbox measures: docs/metrics.md has all of them. There is one for
// each name as long as the process lives. Do not change it.
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
