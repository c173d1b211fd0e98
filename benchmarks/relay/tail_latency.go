package relay

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// TailLatency commits messages one by one, which a forwarder of another process finds by polling or
// in the log, or a program by hand in the log.
func TailLatency() measure.Scenario {
	return measure.Scenario{
		Name:      "tail-latency",
		About:     "100 messages a second of another process: from the commit to the call of the publisher, by how the forwarder finds them, on a server with wal_level=logical",
		Log:       true,
		MaxRounds: tailRounds,
		Picture:   P50,
		Floor:     "by-hand",
		Contenders: []measure.Contender{
			{Name: "tail", Run: latencyApart(true)},
			{Name: "polling", Run: latencyApart(false)},
			{Name: "by-hand", Run: latencySlot},
		},
		Targets: []measure.Target{
			{Name: "tail-latency", Ours: "tail", Limit: 0.4, Metric: P50, Lower: true, AtLeast: 1},
			{Name: "tail-latency", Ours: "tail", Limit: 2.5, Metric: P99, Lower: true, AtLeast: 1},
			{Name: "tail-latency", Ours: "tail", Other: "polling", Metric: P50, Lower: true, AtLeast: 4},
		},
	}
}

// tailSeconds are those in which messages come.
func tailSeconds(stage *measure.Stage) int { return stage.Scale(4, 2) }

func latencyApart(tails bool) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		watch := newStopwatch(tailSeconds(stage) * oneByOne.perSecond)
		a, err := startApart(ctx, stage, watch, tails, forwarder.Config{})
		if err != nil {
			return err
		}
		return errors.Join(watch.runWarm(ctx, stage, oneByOne, warmUp, func(ctx context.Context, msg *message.Message, committed func()) error {
			return a.send(ctx, stage.DB, load.Topic, committed, msg)
		}), a.close())
	}
}

func latencySlot(ctx context.Context, stage *measure.Stage) error {
	watch := newStopwatch(tailSeconds(stage) * oneByOne.perSecond)
	stop, err := openSlot(ctx, stage, watch)
	if err != nil {
		return err
	}
	if err := waitStreaming(ctx, stage.Setup); err != nil {
		return errors.Join(err, stop())
	}
	insert, err := stage.DB.PrepareContext(ctx, floorInsertOne)
	if err != nil {
		return errors.Join(err, stop())
	}
	defer func() { _ = insert.Close() }()
	err = watch.runWarm(ctx, stage, oneByOne, warmUp, func(ctx context.Context, msg *message.Message, committed func()) error {
		err := insertByHand(ctx, stage.DB, insert, msg)
		committed()
		return err
	})
	return errors.Join(err, stop())
}
