package inbox

import (
	"context"
	"time"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// History handles messages with a history of them and without.
func History() measure.Scenario {
	keep := func(retention time.Duration) measure.Run {
		return func(ctx context.Context, stage *measure.Stage) error {
			return onStage(stage).shorter().handleOnce(ctx, stage, middleware.InboxConfig{History: retention}, prepared)
		}
	}
	return measure.Scenario{
		Name:      "inbox-history",
		About:     "a handler that makes one update, 16 at a time, with a history of messages with their payload and without",
		Floor:     "without",
		MaxRounds: addedRounds,
		Contenders: []measure.Contender{
			{Name: "with", Run: keep(time.Hour)},
			{Name: "without", Run: keep(0)},
		},
		Targets: []measure.Target{{Name: "history", Ours: "with", Other: "without", AtLeast: 0.6}},
	}
}
