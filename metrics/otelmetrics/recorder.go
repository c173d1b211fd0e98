// Package otelmetrics gives the measurements of Postbox to OpenTelemetry. It needs the API alone:
// the SDK, and where the metrics go, is up to the program.
//
// Make a [Recorder] from the description of the database, and set it as Metrics of the description
// before you give that to publishers, forwarders, stores and queues:
//
//	recorder, err := otelmetrics.New(database, otelmetrics.Config{})
//	database.Metrics = recorder
//
// docs/metrics.md lists the instruments.
package otelmetrics

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
)

const (
	scope          = "github.com/postbox-go/watermill-postbox"
	defaultTimeout = 5 * time.Second
)

// Config is the configuration of a Recorder. The zero value has all defaults.
type Config struct {
	// Provider makes the instruments. Defaults to the global one.
	Provider metric.MeterProvider
	// Timeout bounds how long a collection waits for the database. After it postbox.database.up is
	// 0, and the other values that are counted in the database are missing. Defaults to 5 s.
	Timeout time.Duration
	// Attributes are added to all series. Two recorders in one process, for two databases, need
	// them to be told apart.
	Attributes []attribute.KeyValue
	// ProcessOnly leaves out what is counted in the database, for all but one of several processes
	// that share the tables: each of them would export the same numbers.
	ProcessOnly bool
}

// Recorder is a [metrics.SeriesRecorder] whose instruments are OpenTelemetry's. It is safe for
// concurrent use.
type Recorder struct {
	measured     map[*metrics.Instrument]func(attributes attribute.Set) instruments.SeriesFunc
	sets         sync.Map // attributes by instrument and labels
	common       []attribute.KeyValue
	registration metric.Registration
}

// New returns a recorder. An error means that the description of the database is not complete, or
// that the provider refuses an instrument.
func New(database postbox.Database, config Config) (*Recorder, error) {
	if config.Provider == nil {
		config.Provider = otel.GetMeterProvider()
	}
	if config.Timeout <= 0 {
		config.Timeout = defaultTimeout
	}
	counter, err := admin.New(database, admin.Config{}, nil)
	if err != nil {
		return nil, err
	}
	meter := config.Provider.Meter(scope)
	r := &Recorder{common: slices.Clone(config.Attributes), measured: map[*metrics.Instrument]func(attribute.Set) instruments.SeriesFunc{}}
	gauges := map[*metrics.Instrument]metric.Float64Observable{}
	var observed []metric.Observable
	for _, i := range instruments.All() {
		if !i.Database {
			r.measured[i], err = synchronous(meter, i)
		} else {
			gauges[i], err = meter.Float64ObservableGauge(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Help))
			observed = append(observed, gauges[i])
		}
		if err != nil {
			return nil, fmt.Errorf("make the instrument %s: %w", i.Name, err)
		}
	}
	if config.ProcessOnly {
		return r, nil
	}
	r.registration, err = meter.RegisterCallback(func(ctx context.Context, observer metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, config.Timeout)
		defer cancel()
		err := counter.Measure(ctx, instruments.RecorderFunc(func(i *metrics.Instrument, value float64, labels ...string) {
			observer.ObserveFloat64(gauges[i], value, metric.WithAttributeSet(r.set(i, labels)))
		}))
		if err != nil {
			otel.Handle(err) // returned, it would keep the SDK from exporting anything of this program
		}
		return nil
	}, observed...)
	if err != nil {
		return nil, fmt.Errorf("register the counts of the database: %w", err)
	}
	return r, nil
}

// synchronous makes an instrument that is told each measurement. The options of a series are made
// once, since making them for each measurement would allocate.
func synchronous(meter metric.Meter, i *metrics.Instrument) (series func(attributes attribute.Set) instruments.SeriesFunc, err error) {
	ctx := context.Background()
	switch i.Kind {
	case metrics.Counter:
		c, err := meter.Int64Counter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Help))
		return func(attributes attribute.Set) instruments.SeriesFunc {
			with := []metric.AddOption{metric.WithAttributeSet(attributes)}
			return func(value float64) { c.Add(ctx, int64(value), with...) }
		}, err
	case metrics.Histogram:
		h, err := meter.Float64Histogram(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Help), metric.WithExplicitBucketBoundaries(i.Buckets...))
		return func(attributes attribute.Set) instruments.SeriesFunc {
			with := []metric.RecordOption{metric.WithAttributeSet(attributes)}
			return func(value float64) { h.Record(ctx, value, with...) }
		}, err
	default:
		g, err := meter.Float64Gauge(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Help))
		return func(attributes attribute.Set) instruments.SeriesFunc {
			with := []metric.RecordOption{metric.WithAttributeSet(attributes)}
			return func(value float64) { g.Record(ctx, value, with...) }
		}, err
	}
}

// Record adds a measurement of this process.
func (r *Recorder) Record(instrument *metrics.Instrument, value float64, labels ...string) {
	r.Series(instrument, labels...).Record(value)
}

// Series returns a series for measurements of this process.
func (r *Recorder) Series(instrument *metrics.Instrument, labels ...string) metrics.Series {
	of := r.measured[instrument]
	if of == nil {
		return instruments.SeriesFunc(func(float64) {}) // it is counted in the database
	}
	return of(r.set(instrument, labels))
}

// key tells the labels of an instrument. No label has a zero byte that the join could be mistaken
// for: at worst, two topics with zero bytes in their names are counted as one.
type key struct {
	instrument *metrics.Instrument
	labels     string
}

// set returns the attributes for labels, made once.
func (r *Recorder) set(i *metrics.Instrument, labels []string) attribute.Set {
	of := key{i, strings.Join(labels, "\x00")}
	if known, ok := r.sets.Load(of); ok {
		return known.(attribute.Set) //nolint:forcetypeassert // the map has nothing else
	}
	attributes := slices.Clone(r.common)
	for n, label := range labels {
		if label != "" {
			attributes = append(attributes, attribute.String(i.Labels[n], strings.ToValidUTF8(label, "\uFFFD")))
		}
	}
	set := attribute.NewSet(attributes...)
	r.sets.Store(of, set)
	return set
}

// Close ends the counting in the database. What processes report is not affected.
func (r *Recorder) Close() error {
	if r.registration == nil {
		return nil
	}
	return r.registration.Unregister()
}
