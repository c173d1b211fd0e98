package middleware

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/given"
)

// Process is the middleware of a handler whose messages an inboxstore.Subscriber delivers. It tells the queue the
// handler's error, or its panic with the stack, or that it ended its goroutine (runtime.Goexit), which a Nack cannot carry; and it writes the messages that the handler
// returns to the outbox, in the transaction that the queue gives the handler if it is transactional: they commit with
// the handler's writes and the end of the message. Without a transaction the outbox must allow autocommit, and a crash
// in between handles the message again.
//
// An error that it has told is the message's failure in a transactional queue, also where a middleware outside of it, such as
// Watermill's Retry or PoisonQueue, acks the message then: the transaction is rolled back. For those inside of it add [Guard].
//
// It returns no messages to the router. It is safe for concurrent use. Add it before, so outside of, whatever else
// works on the handler's messages, such as [Causation].
//
// Middleware panics if the Outbox is none, as [Defer] does with its mistakes: a program with such a mistake does not start, and no message has an attempt for it.
// Watermill's router asks for the middleware when it starts a handler, so [Process.Validate] can tell earlier, as an error.
type Process struct {
	// Outbox takes the messages that the handler returns: a forwarder.Publisher, or another postbox.TransactionalPublisher. Without it, a
	// handler that returns messages fails. What is wrapped in something of yours is none: use forwarder.Decorate. Nor is the publisher of a broker, also for a queue
	// without a transaction: there publish in the handler.
	Outbox message.Publisher
	// PublishTopic is where they go. Defaults to the publish topic of the router's handler.
	PublishTopic string
}

// Validate returns what is wrong with the configuration.
func (p Process) Validate() error {
	if err := given.Outbox(p.Outbox); err != nil {
		return fmt.Errorf("middleware.Process: Outbox: %w", err)
	}
	return nil
}

// Middleware is the middleware as Watermill's router takes it.
func (p Process) Middleware(h message.HandlerFunc) message.HandlerFunc {
	if err := p.Validate(); err != nil {
		panic(err)
	}
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		returned := false
		defer unreturned(ctx, msg, &returned)
		err := emitter{p.Outbox, p.PublishTopic}.handle(ctx, msg, h)
		returned = true
		return nil, guarded(ctx, err)
	}
}
