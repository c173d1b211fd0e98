package relay

import (
	"context"
	"errors"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Resident is the largest resident memory of a process.
const Resident measure.Metric = "resident MiB"

// Memory drains a long backlog in a process of its own. The process holds the whole of this program, with the libraries
// of all contenders.
func Memory() measure.Scenario {
	return measure.Scenario{
		Name:      "memory",
		About:     "a forwarder in a process of its own drains 1,000,000 messages with default settings",
		MaxRounds: 1,
		Picture:   Resident,
		Contenders: []measure.Contender{{Name: "ours", Run: func(ctx context.Context, stage *measure.Stage) error {
			n := stage.Scale(longBacklog, quickBacklog)
			if err := fillOurs(ctx, stage.Setup, n); err != nil {
				return err
			}
			stage.Elsewhere = true
			if err := stage.Start(ctx); err != nil {
				return err
			}
			process, err := startChild(ctx, stage.DSN, 0, 0)
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
		}}},
		Targets: []measure.Target{{Name: "memory", Ours: "ours", Limit: 40, Metric: Resident, Lower: true, AtLeast: 1}},
	}
}
