package relay

import (
	"context"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// A long backlog, of which a million are left after the last turn, and that of a quick run.
const (
	longBacklog  = 1_200_000
	leftBehind   = 1_000_000
	quickBacklog = 200_000
)

// A short backlog, and what is drained of either. Some stay behind in both: were the short one
// drained to its end, the forwarder would have nothing to read ahead while it handles the last
// ones, which it has in the long one.
const (
	shortBacklog = 20_000
	drained      = 16_000
)

// backlogTurns are those of either in a round, since they are over soon.
const backlogTurns = 2

// Backlog drains the same number of messages from a short outbox and from a long one, which each
// turn leaves a little shorter.
func Backlog() measure.Scenario {
	return measure.Scenario{
		Name:      "relay-backlog",
		About:     "the first 16,000 messages of an outbox of 1,000,000 or more, and of one of 20,000",
		Floor:     "short",
		Turns:     backlogTurns,
		MaxRounds: (longBacklog - leftBehind) / (backlogTurns * drained),
		Shared: func(ctx context.Context, stage *measure.Stage) error {
			return fillOurs(ctx, stage.Setup, stage.Scale(longBacklog, quickBacklog))
		},
		Contenders: []measure.Contender{
			{Name: "long", InShared: true, Run: drainVacuumed},
			{Name: "short", Run: func(ctx context.Context, stage *measure.Stage) error {
				if err := fillOurs(ctx, stage.Setup, shortBacklog); err != nil {
					return err
				}
				return drainVacuumed(ctx, stage)
			}},
		},
		Targets: []measure.Target{{Name: "relay-backlog", Ours: "long", Other: "short", AtLeast: 0.85}},
	}
}

// drainVacuumed drains messages of an outbox in which nothing is left of those that an earlier turn
// removed: a forwarder that starts passes over them, however many are in front of it.
func drainVacuumed(ctx context.Context, stage *measure.Stage) error {
	if _, err := stage.Setup.ExecContext(ctx, "VACUUM postbox_messages"); err != nil {
		return err
	}
	return drainOurs(newSink(drained, 0), forwarder.Config{})(ctx, stage)
}
