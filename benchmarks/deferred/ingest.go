package deferred

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// inFlight deliveries wait at a time for their message to be stored.
const inFlight = 64

// Ingest stores deliveries, 64 at a time.
func Ingest() measure.Scenario {
	return measure.Scenario{
		Name:  "ingest",
		About: "store deliveries, 64 in flight: ours stores each once, by hand nothing looks for duplicates",
		Floor: "by-hand",
		Contenders: []measure.Contender{
			{Name: "ours", Run: onPostgresSite(ingest)},
			{Name: "by-hand", Run: onPostgresSite(ingestByHand)},
			{Name: "grouped-by-hand", Run: ingestGrouped(ownQueue, 1)},               // what the target could be at most,
			{Name: "grouped-by-hand-2", Run: ingestGrouped(ownQueue, commitsByHand)}, // or this, with two commits under way,
			{Name: "our-rows-by-hand", Run: ingestGrouped(ourTables, commitsByHand)}, // and at most with the claims and rows of Postbox
		},
		Targets: []measure.Target{{
			Name: "ingest", Ours: "ours", Other: "by-hand", OrElse: []string{"grouped-by-hand", "grouped-by-hand-2"}, AtLeast: 0.95,
		}},
	}
}

// ingest stores deliveries with an inbox.
func ingest(ctx context.Context, stage *measure.Stage, at site) error {
	if err := at.fill(ctx, 0); err != nil {
		return err
	}
	inbox, err := inboxstore.New(at.database, inboxstore.Config{}, nil)
	if err != nil {
		return err
	}
	err = load.Deliver(ctx, stage, inFlight, at.stored, func(ctx context.Context, msg *message.Message) error {
		_, err := inbox.Defer(ctx, queueName, inboxstore.Key{Consumer: queueName, MessageID: msg.UUID}, msg)
		return err
	})
	return errors.Join(err, inbox.Close())
}

func ingestByHand(ctx context.Context, stage *measure.Stage, at site) error {
	if err := accounts.Create(ctx, at.setup, at.createQueue); err != nil {
		return err
	}
	insert, err := at.database.DB.PrepareContext(ctx, at.insertQueue)
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }()
	return load.Deliver(ctx, stage, inFlight, at.stored, func(ctx context.Context, msg *message.Message) error {
		metadata, err := json.Marshal(msg.Metadata)
		if err != nil {
			return err
		}
		_, err = insert.ExecContext(ctx, msg.UUID, metadata, []byte(msg.Payload))
		return err
	})
}

// deliveries are the messages that a contender stores.
func deliveries(stage *measure.Stage) int { return stage.Scale(30_000, 6_000) }
