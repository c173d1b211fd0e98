package middleware

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/report"
)

// Guard is the innermost middleware of a handler that writes in the transaction of an inbox or of a
// queue. Once the handler has returned an error, or panicked, that transaction is never committed,
// whatever the middlewares around it do with the error. Without Guard, Watermill's Retry would run
// the handler again in the same transaction, which then commits the writes of each attempt.
// PoisonQueue and IgnoreErrors would commit the writes of the failed attempt. With Guard the
// attempt fails with the handler's first error. The error is recorded, and the inbox or the queue
// tries again in a new transaction. If the handler ends its goroutine (runtime.Goexit, as FailNow
// of a test does), that is its error, and Guard nacks the message, since the router does not.
//
// Add it last to the handler, or to the router after everything else. The package router does so by
// itself. [Inbox] and [Process] need no Guard against middlewares outside of them. Without a
// transaction, as in a queue that is not transactional, Guard changes nothing: there Retry works as
// Watermill documents. It is safe for concurrent use.
func Guard(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		ctx := msg.Context() // the handler may set another one
		report.From(ctx).Listen()
		returned := false
		defer unreturned(ctx, msg, &returned)
		produced, err = h(msg)
		returned = true
		return produced, guarded(ctx, err)
	}
}

// GuardCommands is [Guard] for the command handlers of Watermill's CQRS component. Set it as
// OnHandle of its CommandProcessorConfig: there AckCommandHandlingErrors drops the error of a
// handler before any middleware sees it.
func GuardCommands(params cqrs.CommandProcessorOnHandleParams) error {
	ctx := params.Message.Context()
	report.From(ctx).Listen()
	returned := false
	defer unreturned(ctx, params.Message, &returned)
	err := params.Handler.Handle(ctx, params.Command)
	returned = true
	return guarded(ctx, err)
}

func guarded(ctx context.Context, err error) error {
	if err != nil {
		report.Fail(ctx, err)
	}
	return err
}
