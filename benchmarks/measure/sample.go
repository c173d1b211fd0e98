package measure

import (
	"slices"
	"time"
)

// Metric names what was measured.
type Metric string

// What every run is measured for, a message but the first.
const (
	Rate       Metric = "msg/s"
	Statements Metric = "statements/msg"
	RoundTrips Metric = "round trips/msg"
	Commits    Metric = "transactions/msg"
	WAL        Metric = "WAL B/msg"
	Allocs     Metric = "allocs/msg"
	ClientCPU  Metric = "client CPU µs/msg"
	ServerCPU  Metric = "server CPU µs/msg"
	// CPU is the sum of the two, and is not stored.
	CPU Metric = "CPU µs/msg"
)

// Sample is what one contender achieved in one round.
type Sample struct {
	Round    int                `json:"round"`
	Messages int                `json:"messages"`
	Elapsed  time.Duration      `json:"elapsed_ns"`
	Values   map[Metric]float64 `json:"values"`
}

// value returns a metric, and whether it was measured.
func (s Sample) value(metric Metric) (value float64, measured bool) {
	if metric != CPU {
		value, measured = s.Values[metric]
		return value, measured
	}
	client, measured := s.Values[ClientCPU]
	return client + s.Values[ServerCPU], measured && client > 0
}

// Series is what one contender achieved in all rounds.
type Series struct {
	Contender string   `json:"contender"`
	Samples   []Sample `json:"samples"`
}

// Median of a metric over the rounds; false where it was not measured.
func (s Series) Median(metric Metric) (float64, bool) {
	values := s.sorted(metric)
	return median(values), len(values) > 0
}

// median of sorted values, 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

// Range returns a metric's least and largest value.
func (s Series) Range(metric Metric) (least, most float64) {
	values := s.sorted(metric)
	if len(values) == 0 {
		return 0, 0
	}
	return values[0], values[len(values)-1]
}

// Spread is how far a metric's rounds lie apart, as a part of the median.
func (s Series) Spread(metric Metric) float64 {
	median, ok := s.Median(metric)
	if !ok || median == 0 {
		return 0
	}
	least, most := s.Range(metric)
	return (most - least) / median
}

func (s Series) sorted(metric Metric) []float64 {
	var values []float64
	for _, sample := range s.Samples {
		if value, measured := sample.value(metric); measured {
			values = append(values, value)
		}
	}
	slices.Sort(values)
	return values
}
