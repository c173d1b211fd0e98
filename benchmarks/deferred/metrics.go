package deferred

import (
	"context"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Metrics works off stored messages with metrics for Prometheus and without: with handlers that do
// nothing, which cost least, so that what is measured costs most in comparison, and with an update
// for each message in micro-batches.
func Metrics() measure.Scenario {
	const backlog, quick = 40_000, 15_000
	nothing := queue.Config{Concurrency: concurrent}
	batches := queue.Config{Concurrency: microBatches, MicroBatch: microBatch}
	work := func(describe load.Describe, config queue.Config) measure.Run {
		return func(ctx context.Context, stage *measure.Stage) error {
			at, n := onStage(stage), stage.Scale(backlog, quick)
			var err error
			if at.database, err = describe(stage.DB); err != nil {
				return err
			}
			if config.MicroBatch > 0 {
				return at.workShaped(ctx, stage, load.Usual(), n/2, config)
			}
			return at.workNothing(ctx, stage, n, config)
		}
	}
	return measure.Scenario{
		Name:  "deferred-metrics",
		About: "work off stored messages, with metrics for Prometheus and without: handlers that do nothing, and micro-batches with one update for each message; no scrape takes place",
		Floor: "without",
		Turns: 5, // the difference is small
		Contenders: []measure.Contender{
			{Name: "with", Run: work(load.Measured, nothing)},
			{Name: "without", Run: work(load.Unmeasured, nothing)},
			{Name: "with-microbatch", Run: work(load.Measured, batches)},
			{Name: "without-microbatch", Run: work(load.Unmeasured, batches)},
		},
		Targets: []measure.Target{
			{Name: "metrics", Ours: "with", Other: "without", Metric: measure.CPU, Lower: true, Paired: true, AtLeast: 0.97},
			{Name: "metrics", Ours: "with-microbatch", Other: "without-microbatch", Metric: measure.CPU, Lower: true, Paired: true, AtLeast: 0.97},
		},
	}
}
