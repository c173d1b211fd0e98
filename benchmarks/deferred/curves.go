package deferred

import (
	"context"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Keys works off messages in the order of their keys, which are more or less even.
func Keys() measure.Scenario {
	inOrder := func(n int, key func(int) string) measure.Run {
		return func(ctx context.Context, stage *measure.Stage) error {
			shape := load.Shape{Payload: load.PayloadSize, Key: key}
			config := queue.Config{Transactional: true}
			return onStage(stage).workShaped(ctx, stage, shape, stage.Scale(n, n/3), config)
		}
	}
	return measure.Scenario{
		Name:  "deferred-keys",
		About: "work off stored messages in the order of their keys, 16 handlers with one update in a transaction each, by how the keys are spread",
		Contenders: []measure.Contender{
			{Name: "1000-keys", Run: inOrder(9_000, load.Uniform)},
			{Name: "zipf", Run: inOrder(4_000, load.Zipf)},
			{Name: "one-key", Run: inOrder(1_500, load.OneKey)},
		},
	}
}
