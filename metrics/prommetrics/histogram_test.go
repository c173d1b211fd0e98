package prommetrics_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics/internal/naming"
)

// exposed is what a scrape says of the metrics of a collector that have this name.
func exposed(t *testing.T, collector prometheus.Collector, name string) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	var of strings.Builder
	for line := range strings.Lines(scraped(t, registry)) {
		if strings.Contains(line, name) {
			of.WriteString(line)
		}
	}
	return of.String()
}

// The values are multiples of 1/1024, so that their sum does not depend on the order.
func TestRecorder_shows_a_histogram_as_the_client_library_does(t *testing.T) {
	t.Parallel()
	recorder, _ := newRecorder(t, describe(testdb.SQLite(t)), prommetrics.Config{ProcessOnly: true, Labels: prometheus.Labels{"shop": "1"}})
	i, labels := instruments.Attempts, []string{"outbox", "out\"box", "orders"}
	reference := prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Name: naming.Of(i), Help: i.Help, Buckets: i.Buckets, ConstLabels: prometheus.Labels{"shop": "1"}}, i.Labels)
	series := recorder.Series(i, labels...)
	require.Equal(t, exposed(t, reference.WithLabelValues(labels...).(prometheus.Histogram), naming.Of(i)), exposed(t, recorder, naming.Of(i)), "without a value")

	values := append([]float64{0, -1, 1e9}, i.Buckets...)
	for range 1000 {
		values = append(values, float64(rand.IntN(2<<20))/1024) //nolint:gosec // no secret
	}
	for _, value := range values {
		reference.WithLabelValues(labels...).Observe(value)
	}
	var writers sync.WaitGroup
	for n, value := range values[:len(values)/2] {
		writers.Go(func() {
			if n%2 == 0 {
				series.Record(value)
			} else {
				recorder.Record(i, value, labels...)
			}
		})
	}
	writers.Go(func() { series.RecordAll(values[len(values)/2:]) })
	writers.Wait()
	shown := exposed(t, recorder, naming.Of(i))
	require.Equal(t, exposed(t, reference, naming.Of(i)), shown)
	require.Equal(t, len(i.Buckets)+1, strings.Count(shown, "_bucket{"))
}

func TestRecorder_refuses_a_wrong_number_of_labels(t *testing.T) {
	t.Parallel()
	recorder, _ := newRecorder(t, describe(testdb.SQLite(t)), prommetrics.Config{ProcessOnly: true})
	for _, i := range []*metrics.Instrument{instruments.Attempts, instruments.Ended, instruments.CircuitOpen} {
		require.Panics(t, func() { recorder.Series(i, "outbox") }, i.Name)
	}
}
