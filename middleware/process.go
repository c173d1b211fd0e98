package middleware

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/report"
)

// Process is the middleware of a handler whose messages a queue.Subscriber delivers. It tells the queue the
// handler's error, or its panic with the stack, or that it ended its goroutine (runtime.Goexit), which a Nack cannot carry. For a handler that returns
// messages take [ProcessWith].
//
// An error that it has told is the message's failure in a transactional queue, also where a middleware outside of it, such as
// Watermill's Retry or PoisonQueue, acks the message then: the transaction is rolled back. For those inside of it add [Guard].
//
// It is safe for concurrent use. Add it before, so outside of, whatever else works on the handler's messages, such as [Causation].
func Process(h message.HandlerFunc) message.HandlerFunc { return process(emitter{}, h) }

// ProcessConfig says where the messages go that a handler of a queue returns.
type ProcessConfig struct {
	// Outbox takes them: a forwarder.Publisher, or another [postbox.TransactionalPublisher]. Required.
	Outbox message.Publisher
	// PublishTopic is where they go. Defaults to the publish topic of the router's handler.
	PublishTopic string
}

// ProcessWith is [Process] for a handler that returns messages. It writes them to the outbox, in the transaction that the queue gives the handler if it is
// transactional: they commit with the handler's writes and the end of the message. Without a transaction the outbox must allow autocommit, and a crash
// in between handles the message again. The router gets no messages to publish.
func ProcessWith(config ProcessConfig) (message.HandlerMiddleware, error) {
	if config.Outbox == nil {
		return nil, errors.New("process: Outbox: is nil; a handler that returns no messages takes middleware.Process")
	}
	if err := given.Outbox(config.Outbox); err != nil {
		return nil, fmt.Errorf("process: Outbox: %w", err)
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return process(emitter{config.Outbox, config.PublishTopic}, h)
	}, nil
}

func process(to emitter, h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		report.From(ctx).Listen()
		returned := false
		defer unreturned(ctx, msg, &returned)
		err := to.handle(ctx, msg, h)
		returned = true
		return nil, guarded(ctx, err)
	}
}
