package relay

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// The messages that one transaction writes, and the clients that write at a time.
const (
	tailBatch   = 100
	tailWriters = 4
)

// TailThroughput publishes messages while they are written. The processor time is that of both.
func TailThroughput() measure.Scenario {
	return measure.Scenario{
		Name: "tail-throughput",
		About: "write 30,000 messages, 100 in a transaction and 4 clients at a time, and publish them meanwhile into a publisher that does nothing, " +
			"by how the forwarder finds them, on a server with wal_level=logical",
		Log:       true,
		MaxRounds: tailRounds,
		Floor:     "by-hand",
		Contenders: []measure.Contender{
			{Name: "tail", Run: throughputApart(true)},
			{Name: "polling", Run: throughputApart(false)},
			{Name: "by-hand", Run: throughputSlot},
		},
		Targets: []measure.Target{{Name: "tail-throughput", Ours: "tail", Other: "polling", AtLeast: 0.9}},
	}
}

// written are the messages of a run.
func written(stage *measure.Stage) int { return stage.Scale(30_000, 10_000) }

func throughputApart(tails bool) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		to := newSink(written(stage), 0)
		a, err := startApart(ctx, stage, to, tails, forwarder.Config{})
		if err != nil {
			return err
		}
		return errors.Join(writeAndWait(ctx, stage, to, func(ctx context.Context, batch []*message.Message) error {
			return a.send(ctx, stage.DB, load.Topic, func() {}, batch...)
		}), a.close())
	}
}

func throughputSlot(ctx context.Context, stage *measure.Stage) error {
	to := newSink(written(stage), 0)
	stop, err := openSlot(ctx, stage, to)
	if err != nil {
		return err
	}
	if err := waitStreaming(ctx, stage.Setup); err != nil {
		return errors.Join(err, stop())
	}
	insert, err := stage.DB.PrepareContext(ctx, floorInsert)
	if err != nil {
		return errors.Join(err, stop())
	}
	defer func() { _ = insert.Close() }()
	err = writeAndWait(ctx, stage, to, func(ctx context.Context, batch []*message.Message) error {
		ids, metadata, payloads := make(pq.StringArray, len(batch)), make(pq.ByteaArray, len(batch)), make(pq.ByteaArray, len(batch))
		for i, msg := range batch {
			ids[i], payloads[i] = msg.UUID, msg.Payload
			var err error
			if metadata[i], err = json.Marshal(msg.Metadata); err != nil {
				return err
			}
		}
		_, err := insert.ExecContext(ctx, load.Topic, ids, metadata, payloads)
		return err
	})
	return errors.Join(err, stop())
}

// writeAndWait starts the clock, writes the messages batch by batch, and waits until all are
// published.
func writeAndWait(ctx context.Context, stage *measure.Stage, to *sink, write func(ctx context.Context, batch []*message.Message) error) error {
	list := load.Messages(0, written(stage))
	if err := stage.Start(ctx); err != nil {
		return err
	}
	err := load.Clients(ctx, len(list)/tailBatch, tailWriters, func(ctx context.Context, i int) error {
		return write(ctx, list[i*tailBatch:][:tailBatch])
	})
	if err != nil {
		return err
	}
	if err := to.wait(ctx); err != nil {
		return err
	}
	return stage.Stop(len(list))
}
