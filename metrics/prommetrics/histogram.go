package prommetrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics/internal/naming"
)

// histograms are the series of an instrument. They are not those of the client library because
// these take one value at a time: for the values of all messages of a settlement that costs five
// times as much.
type histograms struct{ *prometheus.MetricVec }

func newHistograms(i *metrics.Instrument, common prometheus.Labels) histograms {
	desc := prometheus.NewDesc(naming.Of(i), i.Help, labels(i), common)
	return histograms{prometheus.NewMetricVec(desc, func(labels ...string) prometheus.Metric {
		return &histogram{desc: desc, labels: labels, created: time.Now(), bounds: i.Buckets, counts: make([]uint64, len(i.Buckets)+1)}
	})}
}

func (v histograms) series(labels []string) metrics.Series {
	found, err := v.GetMetricWithLabelValues(labels...)
	if err != nil {
		panic(err) // the number of labels is wrong, as with WithLabelValues of the client library
	}
	return found.(*histogram) //nolint:forcetypeassert // the vector has nothing else
}

// histogram is one series.
type histogram struct {
	desc    *prometheus.Desc
	labels  []string
	created time.Time
	bounds  []float64

	mu     sync.Mutex
	counts []uint64 // of values by the first bound that is not below them; the last is for those above all bounds
	sum    float64
}

// Record adds a value.
func (h *histogram) Record(value float64) {
	h.mu.Lock()
	h.add(value)
	h.mu.Unlock()
}

// RecordAll adds several values.
func (h *histogram) RecordAll(values []float64) {
	h.mu.Lock()
	for _, value := range values {
		h.add(value)
	}
	h.mu.Unlock()
}

// add is called under the lock. Most values are small, so a search from the first bound is short.
func (h *histogram) add(value float64) {
	i := 0
	for i < len(h.bounds) && value > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += value
}

// Desc returns what a scrape says of all series.
func (h *histogram) Desc() *prometheus.Desc { return h.desc }

// Write writes what a scrape says of this one.
func (h *histogram) Write(to *dto.Metric) error {
	count, buckets := uint64(0), make(map[float64]uint64, len(h.bounds))
	h.mu.Lock()
	for i, bound := range h.bounds {
		count += h.counts[i]
		buckets[bound] = count
	}
	count += h.counts[len(h.bounds)]
	sum := h.sum
	h.mu.Unlock()
	read, err := prometheus.NewConstHistogramWithCreatedTimestamp(h.desc, count, sum, buckets, h.created, h.labels...)
	if err != nil {
		return err
	}
	return read.Write(to)
}
