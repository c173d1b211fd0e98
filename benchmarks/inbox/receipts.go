package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// receiptTopic is that of the receipts.
const receiptTopic = "receipts"

// Receipts handles messages with a receipt of each and without. By hand, the receipt is a row of an
// outbox, as [Write] writes it by hand.
func Receipts() measure.Scenario {
	return measure.Scenario{
		Name:      "inbox-receipts",
		About:     "a handler that makes one update, 16 at a time, with a receipt of each message in the outbox and without",
		Floor:     "by-hand",
		MaxRounds: addedRounds,
		Contenders: []measure.Contender{
			{Name: "with", Run: withReceipts(receiptTopic)},
			{Name: "without", Run: withReceipts("")},
			{Name: "by-hand", Run: receiptByHand},
		},
		Targets: []measure.Target{
			{Name: "receipts", Ours: "with", Other: "by-hand", AtLeast: 0.9},
			{Name: "receipts", Ours: "with", Other: "without", AtLeast: 0.7},
		},
	}
}

// withReceipts handles messages with an inbox that publishes receipts on a topic; "" is none.
func withReceipts(topic string) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		at := onStage(stage).shorter()
		outbox, err := forwarder.NewPublisher(at.database, forwarder.PublisherConfig{}, nil)
		if err != nil {
			return err
		}
		err = at.handleOnce(ctx, stage, middleware.InboxConfig{Outbox: outbox, ReceiptTopic: topic}, prepared)
		return errors.Join(err, outbox.Close())
	}
}

func receiptByHand(ctx context.Context, stage *measure.Stage) error {
	if err := accounts.Create(ctx, stage.Setup, createOutbox); err != nil {
		return err
	}
	insert, err := stage.DB.PrepareContext(ctx, insertOutbox)
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }()
	return onStage(stage).shorter().onceByHand(ctx, stage, prepared, prepared, func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		metadata, err := json.Marshal(map[string]string{"consumer": "accounts", "topic": load.Topic, "message": msg.UUID})
		if err != nil {
			return err
		}
		_, err = tx.StmtContext(ctx, insert).ExecContext(ctx, receiptTopic, postbox.NewMessageID(), metadata, []byte{})
		return err
	})
}
