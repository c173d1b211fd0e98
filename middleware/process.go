package middleware

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
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
type Process struct {
	// Outbox takes the messages that the handler returns: a forwarder.Publisher, or another [postbox.TransactionalPublisher]. Without it, a
	// handler that returns messages fails; with another publisher, each message of a queue with a transaction does.
	Outbox message.Publisher
	// PublishTopic is where they go. Defaults to the publish topic of the router's handler.
	PublishTopic string
}

// Middleware is the middleware as Watermill's router takes it.
func (p Process) Middleware(h message.HandlerFunc) message.HandlerFunc {
	wrong := given.Outbox(p.Outbox)
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		if _, inTx := postbox.TxFromContext(ctx); inTx && wrong != nil {
			return nil, guarded(ctx, fmt.Errorf("middleware.Process: Outbox: %w", wrong))
		}
		returned := false
		defer unreturned(ctx, msg, &returned)
		err := emitter{p.Outbox, p.PublishTopic}.handle(ctx, msg, h)
		returned = true
		return nil, guarded(ctx, err)
	}
}
