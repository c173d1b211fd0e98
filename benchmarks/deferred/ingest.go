package deferred

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
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
			{Name: "ours", Run: oursIngest},
			{Name: "by-hand", Run: ingestByHand},
			{Name: "grouped-by-hand", Run: ingestGrouped(1)},   // what the target could be at most,
			{Name: "grouped-by-hand-2", Run: ingestGrouped(2)}, // or this, with two commits under way
		},
		Targets: []measure.Target{{Name: "ingest", Ours: "ours", Other: "by-hand", AtLeast: 2.5}},
	}
}

func oursIngest(ctx context.Context, stage *measure.Stage) error {
	if err := fillOurs(ctx, stage.Setup, 0); err != nil {
		return err
	}
	inbox, err := inboxstore.New(postbox.Database{DB: stage.DB, Dialect: postbox.PostgreSQL}, inboxstore.Config{}, nil)
	if err != nil {
		return err
	}
	err = load.Deliver(ctx, stage, inFlight, stage.Scale(30_000, 6_000), func(ctx context.Context, msg *message.Message) error {
		_, err := inbox.Defer(ctx, queueName, inboxstore.Key{Consumer: queueName, MessageID: msg.UUID}, msg)
		return err
	})
	return errors.Join(err, inbox.Close())
}

func ingestByHand(ctx context.Context, stage *measure.Stage) error {
	if _, err := stage.Setup.ExecContext(ctx, createQueue); err != nil {
		return err
	}
	insert, err := stage.DB.PrepareContext(ctx, insertQueue)
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }()
	return load.Deliver(ctx, stage, inFlight, stage.Scale(30_000, 6_000), func(ctx context.Context, msg *message.Message) error {
		metadata, err := json.Marshal(msg.Metadata)
		if err != nil {
			return err
		}
		_, err = insert.ExecContext(ctx, msg.UUID, metadata, []byte(msg.Payload))
		return err
	})
}
