package relay

import (
	"context"
	"errors"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Resident is the largest resident memory of a process.
const Resident measure.Metric = "resident MiB"

// Memory drains a long backlog in a process of its own, which is a forwarder and nothing else. The
// same process with a single message shows how much of its memory is the program itself.
func Memory() measure.Scenario {
	return measure.Scenario{
		Name:      "memory",
		About:     "a forwarder in a process of its own drains 1,000,000 messages with default settings; and one that has a single message",
		MaxRounds: 1,
		Picture:   Resident,
		Contenders: []measure.Contender{
			{Name: "ours", Run: func(ctx context.Context, stage *measure.Stage) error {
				return drainElsewhere(ctx, stage, stage.Scale(longBacklog, quickBacklog))
			}},
			{Name: "one-message", Run: func(ctx context.Context, stage *measure.Stage) error { return drainElsewhere(ctx, stage, 1) }},
		},
		Targets: []measure.Target{{Name: "memory", Ours: "ours", Limit: 40, Metric: Resident, Lower: true, AtLeast: 1}},
	}
}

// drainElsewhere drains n messages in another process, and records its memory.
func drainElsewhere(ctx context.Context, stage *measure.Stage, n int) (err error) {
	if err := fillOurs(ctx, stage.Setup, n); err != nil {
		return err
	}
	path, remove, err := buildChild(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	stage.Elsewhere = true
	if err := stage.Start(ctx); err != nil {
		return err
	}
	process, err := startChild(ctx, path, stage.DSN, 0, 0)
	if err != nil {
		return err
	}
	for process.last < int64(n) && err == nil {
		err = process.next()
	}
	err = errors.Join(err, stage.Stop(n))
	memory, stopErr := process.stop()
	const mebibyte = 1 << 20
	stage.Record(Resident, float64(memory)/mebibyte)
	return errors.Join(err, stopErr)
}
