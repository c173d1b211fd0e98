package deferred

import (
	"context"
	"encoding/json"

	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// ingestGrouped stores deliveries once, and commits them together, by hand, so many commits at a time. It keeps no order and
// knows no delays, so it shows what so many deliveries can gain by sharing commits.
func ingestGrouped(commits int) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error { return groupByHand(ctx, stage, commits) }
}

func groupByHand(ctx context.Context, stage *measure.Stage, commits int) error {
	for _, statement := range []string{onPostgres.createQueue, onPostgres.CreateProcessed} {
		if _, err := stage.Setup.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	insert, err := stage.DB.PrepareContext(ctx, insertQueueOnce)
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }()
	together := load.NewGroup(inFlight, commits, func(batch []*message.Message) error {
		var ids pq.StringArray
		var metadata, payloads pq.ByteaArray
		for _, msg := range batch {
			encoded, err := json.Marshal(msg.Metadata)
			if err != nil {
				return err
			}
			ids, metadata, payloads = append(ids, msg.UUID), append(metadata, encoded), append(payloads, msg.Payload)
		}
		_, err := insert.ExecContext(ctx, queueName, ids, metadata, payloads)
		return err
	})
	defer together.Close()
	return load.Deliver(ctx, stage, inFlight, deliveries(stage), func(_ context.Context, msg *message.Message) error {
		return together.Do(msg)
	})
}
