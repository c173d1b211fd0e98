package deferred

import (
	"context"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/queue"
)

// History works off messages with a history of those that are done, with limits that are never
// reached, and with neither.
func History() measure.Scenario {
	run := func(config queue.Config) measure.Run {
		config.Concurrency = concurrent
		return func(ctx context.Context, stage *measure.Stage) error {
			return onStage(stage).workNothing(ctx, stage, stage.Scale(30_000, 10_000), config)
		}
	}
	return measure.Scenario{
		Name:      "deferred-history",
		About:     "work off stored messages with handlers that do nothing: with a history of messages that are done, with limits that are never reached, and with neither",
		Floor:     "plain",
		MaxRounds: addedRounds,
		Contenders: []measure.Contender{
			{Name: "plain", Run: run(queue.Config{})},
			{Name: "history", Run: run(queue.Config{History: time.Hour})},
			{Name: "limits", Run: run(queue.Config{Limits: neverReached})},
		},
		Targets: []measure.Target{
			{Name: "history", Ours: "history", Other: "plain", AtLeast: 0.5},
			{Name: "limits", Ours: "limits", Other: "plain", AtLeast: 0.8},
		},
	}
}

// neverReached limits a queue.
var neverReached = postbox.Limits{
	Total: postbox.Limit{PerSecond: mostPerSecond, MaxConcurrent: mostAtOnce},
}

// mostPerSecond and mostAtOnce are more than any contender does.
const (
	mostPerSecond = 1_000_000
	mostAtOnce    = 10_000
)
