package relay

import (
	"context"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// Limits drains a backlog with limits that are never reached and without: for the outbox, and for
// its topic.
func Limits() measure.Scenario {
	const most, atOnce = 1_000_000, 10_000 // more than any forwarder does
	limit := postbox.Limit{PerSecond: most, MaxConcurrent: atOnce}
	drain := func(limits postbox.Limits) measure.Run {
		return func(ctx context.Context, stage *measure.Stage) error {
			n := stage.Scale(50_000, 20_000)
			return ours(n, newSink(n, 0), forwarder.Config{Limits: limits})(ctx, stage)
		}
	}
	return measure.Scenario{
		Name:  "relay-limits",
		About: "drain 50,000 messages into a publisher that does nothing, with limits that are never reached and without",
		Floor: "without",
		Contenders: []measure.Contender{
			{Name: "without", Run: drain(postbox.Limits{})},
			{Name: "outbox", Run: drain(postbox.Limits{Total: limit})},
			{Name: "topic", Run: drain(postbox.Limits{Topics: map[string]postbox.Limit{load.Topic: limit}})},
		},
		Targets: []measure.Target{
			{Name: "limits", Ours: "outbox", Other: "without", AtLeast: 0.9},
			{Name: "limits", Ours: "topic", Other: "without", AtLeast: 0.9},
		},
	}
}
