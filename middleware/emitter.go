package middleware

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// emitter writes the messages that a handler returns, and the receipt of the message that it has
// handled, together with the handler's own writes, not after them.
type emitter struct {
	outbox       message.Publisher
	topic        string // that of the router where it is empty
	receiptTopic string // empty for no receipts
}

// handle runs the handler and writes the messages that it returns to the outbox, and then the
// receipt, all in the transaction of ctx. A panic becomes an error with its stack.
func (e emitter) handle(ctx context.Context, msg *message.Message, h message.HandlerFunc, confirmed receipt.Receipt) error {
	confirms := e.receiptTopic != "" && !receipt.Is(msg) // the handler may change the message
	return spool.Recovered(func() error {
		produced, err := h(msg)
		if err == nil && len(produced) > 0 {
			err = e.emit(ctx, produced)
		}
		if err == nil && confirms {
			confirmed.HandledAt = time.Now()
			err = receipt.Publish(ctx, e.outbox, e.receiptTopic, confirmed)
		}
		return err
	})
}

// emit writes the messages that the handler has returned.
func (e emitter) emit(ctx context.Context, produced []*message.Message) error {
	topic := e.topic
	if topic == "" {
		topic = message.PublishTopicFromCtx(ctx)
	}
	if e.outbox == nil || topic == "" {
		return errors.New("the handler returned messages, and there is no Outbox to publish them, or no topic: configure an Outbox and a PublishTopic, for a queue with middleware.ProcessWith")
	}
	if slices.Contains(produced, nil) {
		return postbox.Permanent(errors.New("the handler returned a message that is nil"))
	}
	for _, out := range produced {
		out.SetContext(withValuesOf(ctx, out.Context()))
	}
	return e.outbox.Publish(topic, produced...)
}

// withValuesOf returns a context that also has the values that the handler has put into the context
// of a returned message, such as a delay of Watermill's.
func withValuesOf(ctx, produced context.Context) context.Context {
	if produced == context.Background() { // that of a message without one
		return ctx
	}
	return withValues{ctx, produced}
}

type withValues struct {
	context.Context //nolint:containedctx // it is one

	more context.Context //nolint:containedctx // of which it has the values
}

// Value looks into the transaction's context first.
func (c withValues) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.more.Value(key)
}
