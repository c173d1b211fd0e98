package middleware

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
)

// Process is the middleware of a handler whose messages a queue.Subscriber delivers. It tells the
// queue the error that the handler returned, or a panic with its stack, which a Nack cannot carry.
// For a handler that returns messages use [ProcessWith].
//
// In a transactional queue, an error that Process has told the queue is the message's failure. That
// holds even if a middleware outside of it, such as Watermill's Retry or PoisonQueue, then acks the
// message: the transaction is rolled back. For middlewares inside of it add [Guard].
//
// It is safe for concurrent use. Add it first, so that it is outside of other middleware that works
// on the handler's messages, such as [Causation].
func Process(h message.HandlerFunc) message.HandlerFunc { return process(emitter{}, "", h) }

// ProcessConfig says where the messages go that a handler of a queue returns.
type ProcessConfig struct {
	// Outbox takes them: a forwarder.Publisher, or another one with PublishesInTx.
	// Required.
	Outbox message.Publisher
	// PublishTopic is the topic of these messages. Defaults to the publish topic of the router's
	// handler.
	PublishTopic string
	// ReceiptTopic is the topic on which a receipt is published of each message that the handler
	// has handled: see package receipts. A message that is itself a receipt has none. In a
	// transactional queue the receipt commits with the handler's writes. The receipt names the
	// topic in the metadata [postbox.MetadataSourceTopic], or else the one that the router's
	// handler subscribes to. Defaults to no receipts.
	ReceiptTopic string
	// Consumer is the name of the handler in its receipts. Defaults to its name in the router.
	Consumer string
}

// ProcessWith is [Process] for a handler that returns messages. It writes them to the outbox. In a
// transactional queue it does so in the transaction that the queue gives the handler, so they
// commit with the handler's writes and the end of the message. Without a transaction the outbox
// must allow autocommit, and after a crash in between the message is handled again. The router gets
// no messages to publish.
func ProcessWith(config ProcessConfig) (message.HandlerMiddleware, error) {
	if config.Outbox == nil {
		return nil, errors.New("process: Outbox: is nil: set it, or use middleware.Process for a handler that returns no messages")
	}
	if err := given.Outbox(config.Outbox); err != nil {
		return nil, fmt.Errorf("process: Outbox: %w", err)
	}
	if err := checkReceiptTopic(config.ReceiptTopic, config.Outbox); err != nil {
		return nil, fmt.Errorf("process: ReceiptTopic: %w", err)
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return process(emitter{config.Outbox, config.PublishTopic, config.ReceiptTopic}, config.Consumer, h)
	}, nil
}

func process(to emitter, consumer string, h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		return nil, guarded(ctx, func() error {
			return to.handle(ctx, msg, h, receipt.Receipt{
				Consumer:  cmp.Or(consumer, message.HandlerNameFromCtx(ctx)),
				Topic:     cmp.Or(msg.Metadata.Get(postbox.MetadataSourceTopic), message.SubscribeTopicFromCtx(ctx)),
				MessageID: msg.UUID,
			})
		})
	}
}
