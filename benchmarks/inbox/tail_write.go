package inbox

import (
	"context"
	"errors"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// TailWrite writes a message into the log alone, in the transaction of a business insert.
func TailWrite() measure.Scenario {
	return measure.Scenario{
		Name:  "tail-write",
		About: "a transaction of one business insert and one message, 8 clients: messages that are in the log alone, or rows, on a server with wal_level=logical",
		Log:   true,
		Floor: "by-hand",
		Turns: 2,
		Contenders: []measure.Contender{
			{Name: "log", Run: writeLog},
			{Name: "rows", Run: func(ctx context.Context, stage *measure.Stage) error {
				return oursWrite(ctx, stage, load.Usual(), writers, stage.Scale(12_000, 3_000))
			}},
			{Name: "by-hand", Run: writeByHand},
			{Name: "log-by-hand", Run: emitByHand}, // what the target could be at most
		},
		Targets: []measure.Target{{Name: "tail-write", Ours: "log", Other: "by-hand", AtLeast: 1.1}},
	}
}

// writeLog is [oursWrite] with messages in the log. Nothing reads them.
func writeLog(ctx context.Context, stage *measure.Stage) (err error) {
	_, drop, err := load.SetUpLog(ctx, stage)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	return writeTo(ctx, stage, load.Usual(), writers, stage.Scale(12_000, 3_000), forwarder.PublisherConfig{Log: true}, func(*message.Message) {})
}

// emitByHand writes the bytes of a message into the log.
func emitByHand(ctx context.Context, stage *measure.Stage) error {
	return writeRows(ctx, stage, emitMessage, func(msg *message.Message, metadata []byte) []any {
		return []any{slices.Concat([]byte(load.Topic), []byte(msg.UUID), metadata, msg.Payload)}
	})
}
