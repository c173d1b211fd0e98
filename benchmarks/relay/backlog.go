package relay

import (
	"context"

	"github.com/postbox-go/watermill-postbox/forwarder"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// A long backlog, and that of a quick run.
const (
	longBacklog  = 1_000_000
	quickBacklog = 200_000
)

// Backlog drains the same number of messages from a short outbox and from a long one, which each round leaves a little
// shorter.
func Backlog() measure.Scenario {
	some := func(stage *measure.Stage) int { return stage.Scale(20_000, 10_000) }
	return measure.Scenario{
		Name:  "relay-backlog",
		About: "20,000 messages, of an outbox of 1,000,000 and of one that has no more",
		Floor: "short",
		Shared: func(ctx context.Context, stage *measure.Stage) error {
			return fillOurs(ctx, stage.Setup, stage.Scale(longBacklog, quickBacklog))
		},
		Contenders: []measure.Contender{
			{Name: "long", InShared: true, Run: func(ctx context.Context, stage *measure.Stage) error {
				return drainVacuumed(ctx, stage, some(stage))
			}},
			{Name: "short", Run: func(ctx context.Context, stage *measure.Stage) error {
				if err := fillOurs(ctx, stage.Setup, some(stage)); err != nil {
					return err
				}
				return drainVacuumed(ctx, stage, some(stage))
			}},
		},
		Targets: []measure.Target{{Name: "relay-backlog", Ours: "long", Other: "short", AtLeast: 0.85}},
	}
}

// drainVacuumed drains n messages of an outbox in which nothing is left of those that an earlier round removed: a forwarder
// that starts passes over them, however many are in front of it.
func drainVacuumed(ctx context.Context, stage *measure.Stage, n int) error {
	if _, err := stage.Setup.ExecContext(ctx, "VACUUM postbox_messages"); err != nil {
		return err
	}
	return drainOurs(newSink(n, 0), forwarder.Config{})(ctx, stage)
}
