package deferred

import (
	"context"
	"encoding/json"
	"errors"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
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
		},
		Targets: []measure.Target{{Name: "ingest", Ours: "ours", Other: "by-hand", AtLeast: 2.5}},
	}
}

// deliver lets deliveries come, once there are connections.
func deliver(ctx context.Context, stage *measure.Stage, store func(ctx context.Context, msg *message.Message) error) error {
	const warmUp = 20 * inFlight
	list := load.Messages(0, warmUp+stage.Scale(30_000, 6_000))
	all := func(part []*message.Message) error {
		return load.Clients(ctx, len(part), inFlight, func(ctx context.Context, i int) error { return store(ctx, part[i]) })
	}
	if err := all(list[:warmUp]); err != nil {
		return err
	}
	if err := stage.Start(ctx); err != nil {
		return err
	}
	if err := all(list[warmUp:]); err != nil {
		return err
	}
	return stage.Stop(len(list) - warmUp)
}

func oursIngest(ctx context.Context, stage *measure.Stage) error {
	if err := fillOurs(ctx, stage.Setup, 0); err != nil {
		return err
	}
	inbox, err := inboxstore.New(stage.DB, inboxstore.Config{Dialect: postbox.PostgreSQL}, nil)
	if err != nil {
		return err
	}
	err = deliver(ctx, stage, func(ctx context.Context, msg *message.Message) error {
		_, err := inbox.Defer(ctx, queue, inboxstore.Key{Consumer: queue, MessageID: msg.UUID}, msg)
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
	return deliver(ctx, stage, func(ctx context.Context, msg *message.Message) error {
		metadata, err := json.Marshal(msg.Metadata)
		if err != nil {
			return err
		}
		_, err = insert.ExecContext(ctx, msg.UUID, metadata, []byte(msg.Payload))
		return err
	})
}
