package relay

import (
	"context"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// Metrics drains a backlog with metrics for Prometheus and without. Tuned, a message costs least,
// and what is measured of it most in comparison.
func Metrics() measure.Scenario {
	const backlog, quick = 60_000, 20_000
	drain := func(describe load.Describe, config forwarder.Config) measure.Run {
		return func(ctx context.Context, stage *measure.Stage) error {
			n := stage.Scale(backlog, quick)
			if err := fillShaped(ctx, stage.Setup, load.Usual(), n); err != nil {
				return err
			}
			return drainDescribed(describe, newSink(n, 0), config)(ctx, stage)
		}
	}
	return measure.Scenario{
		Name:  "relay-metrics",
		About: "drain 60,000 messages into a publisher that does nothing, with metrics for Prometheus and without; no scrape takes place",
		Floor: "without",
		Turns: 5, // the difference is small
		Contenders: []measure.Contender{
			{Name: "with", Run: drain(load.Measured, forwarder.Config{})},
			{Name: "without", Run: drain(load.Unmeasured, forwarder.Config{})},
			{Name: "with-tuned", Run: drain(load.Measured, tuned)},
			{Name: "without-tuned", Run: drain(load.Unmeasured, tuned)},
		},
		Targets: []measure.Target{
			{Name: "metrics", Ours: "with", Other: "without", Metric: measure.CPU, Lower: true, Paired: true, AtLeast: 0.97},
			{Name: "metrics", Ours: "with-tuned", Other: "without-tuned", Metric: measure.CPU, Lower: true, Paired: true, AtLeast: 0.97},
		},
	}
}
