// Package prommetrics shows the measurements of Postbox to Prometheus.
//
// Make a [Recorder] from the description of the database, register it, and set it as Metrics of the
// description before you give that to publishers, forwarders, stores and queues:
//
//	recorder, err := prommetrics.New(database, prommetrics.Config{})
//	prometheus.MustRegister(recorder)
//	database.Metrics = recorder
//
// docs/metrics.md lists the metrics. In their names underscores stand for dots, seconds are named,
// and a counter ends with _total: postbox.messages.ended is postbox_messages_ended_total.
package prommetrics

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics/internal/naming"
)

// defaultTimeout is half of the time that Prometheus waits for a scrape by default.
const defaultTimeout = 5 * time.Second

// Config is the configuration of a Recorder. The zero value has all defaults.
type Config struct {
	// Timeout bounds how long a scrape waits for the database. After it the scrape has what this
	// process measured, and postbox_database_up is 0. Keep it below the timeout of the scrape.
	// Defaults to 5 s.
	Timeout time.Duration
	// Labels are added to all series. Two recorders in one registry, for two databases, need the
	// same names here with different values.
	Labels prometheus.Labels
	// ProcessOnly leaves out what is counted in the database, for all but one of several processes
	// that share the tables: each of them would export the same numbers.
	ProcessOnly bool
}

// Recorder is a [metrics.SeriesRecorder] and a [prometheus.Collector]. It is safe for concurrent
// use, and does not have to be closed.
type Recorder struct {
	config   Config
	admin    *admin.Admin
	measured map[*metrics.Instrument]vector
	counted  map[*metrics.Instrument]*prometheus.Desc
}

// vector holds the series of an instrument that processes report.
type vector struct {
	prometheus.Collector
	series func(labels []string) metrics.Series
}

// New returns a recorder, which counts in that database at each scrape. An error means that the
// description of the database is not complete.
func New(database postbox.Database, config Config) (*Recorder, error) {
	if config.Timeout <= 0 {
		config.Timeout = defaultTimeout
	}
	r := &Recorder{config: config, measured: map[*metrics.Instrument]vector{}, counted: map[*metrics.Instrument]*prometheus.Desc{}}
	var err error
	if r.admin, err = admin.New(database, admin.Config{}, nil); err != nil {
		return nil, err
	}
	for _, i := range instruments.All() {
		if i.Database {
			r.counted[i] = prometheus.NewDesc(naming.Of(i), i.Help, labels(i), config.Labels)
		} else {
			r.measured[i] = newVector(i, config.Labels)
		}
	}
	return r, nil
}

func newVector(i *metrics.Instrument, common prometheus.Labels) vector {
	switch i.Kind {
	case metrics.Counter:
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: naming.Of(i), Help: i.Help, ConstLabels: common}, labels(i))
		return vector{v, func(labels []string) metrics.Series { return instruments.SeriesFunc(v.WithLabelValues(labels...).Add) }}
	case metrics.Histogram:
		v := newHistograms(i, common)
		return vector{v, v.series}
	default:
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: naming.Of(i), Help: i.Help, ConstLabels: common}, labels(i))
		return vector{v, func(labels []string) metrics.Series { return instruments.SeriesFunc(v.WithLabelValues(labels...).Set) }}
	}
}

// labels returns the names that Prometheus has for the labels of an instrument.
func labels(i *metrics.Instrument) []string {
	names := make([]string, len(i.Labels))
	for n, label := range i.Labels {
		names[n] = naming.Underscored(label)
	}
	return names
}

// Record adds a measurement of this process.
func (r *Recorder) Record(instrument *metrics.Instrument, value float64, labels ...string) {
	if v, known := r.measured[instrument]; known {
		v.series(valid(labels)).Record(value)
	}
}

// Series returns a series for measurements of this process. It exists from then on.
func (r *Recorder) Series(instrument *metrics.Instrument, labels ...string) metrics.Series {
	if v, known := r.measured[instrument]; known {
		return v.series(valid(labels))
	}
	return instruments.SeriesFunc(func(float64) {}) // it is counted in the database
}

// valid makes labels of any bytes acceptable, since names of topics come from users and Prometheus
// wants UTF-8.
func valid(labels []string) []string {
	if !slices.ContainsFunc(labels, func(label string) bool { return !utf8.ValidString(label) }) {
		return labels
	}
	labels = slices.Clone(labels) // they are the caller's
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(label, "\uFFFD")
	}
	return labels
}

// Describe sends the descriptions of all metrics.
func (r *Recorder) Describe(descriptions chan<- *prometheus.Desc) {
	for _, v := range r.measured {
		v.Describe(descriptions)
	}
	for _, d := range r.counted {
		descriptions <- d
	}
}

// Collect sends what this process measured, and then counts in the database. An error of the
// database is visible as postbox_database_up.
func (r *Recorder) Collect(collected chan<- prometheus.Metric) {
	for _, v := range r.measured {
		v.Collect(collected)
	}
	if r.config.ProcessOnly {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.config.Timeout)
	defer cancel()
	_ = r.admin.Measure(ctx, instruments.RecorderFunc(func(i *metrics.Instrument, value float64, labels ...string) {
		collected <- prometheus.MustNewConstMetric(r.counted[i], prometheus.GaugeValue, value, valid(labels)...)
	}))
}
