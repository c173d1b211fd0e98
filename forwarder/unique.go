package forwarder

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// WhenSkipped returns a context for messages. If a [Publisher] leaves one of them out, because
// another message with its unique key waits (see [postbox.SkipIfWaiting]), it calls report with
// that message before Publish returns. The transaction may be rolled back later.
//
// A Publisher knows what it left out by the number of rows that a statement has changed. If the
// transaction belongs to another library whose results do not have that number, report is not
// called: see [postbox.ExecFunc]. If receipts of the message are awaited, Publish then returns an
// error, since it must know whether to await them: roll the transaction back.
func WhenSkipped(ctx context.Context, report func(skipped *message.Message)) context.Context {
	return context.WithValue(ctx, skippedKey{}, report)
}

type skippedKey struct{}

// reportSkipped calls the function that the context of a message carries, if there is one.
func reportSkipped(msg *message.Message) {
	if report, ok := msg.Context().Value(skippedKey{}).(func(*message.Message)); ok && report != nil {
		report(msg)
	}
}
