package inbox

import (
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Metrics handles messages with metrics for Prometheus and without.
func Metrics() measure.Scenario {
	return measure.Scenario{
		Name:  "inbox-metrics",
		About: "a handler that makes one update, 16 at a time, with metrics for Prometheus and without; no scrape takes place",
		Floor: "without",
		Turns: 5, // the difference is small
		Contenders: []measure.Contender{
			{Name: "with", Run: oursOnce(load.Measured, prepared)},
			{Name: "without", Run: oursOnce(load.Unmeasured, prepared)},
		},
		Targets: []measure.Target{{Name: "metrics", Ours: "with", Other: "without", Metric: measure.CPU, Lower: true, Paired: true, AtLeast: 0.97}},
	}
}
