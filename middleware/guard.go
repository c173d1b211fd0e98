package middleware

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/report"
)

// Guard is the innermost middleware of a handler that writes in the transaction of an inbox or of a
// queue. Once the handler has returned an error, or panicked, that transaction is never committed,
// whatever the middlewares around it do with the error. Without Guard, Watermill's Retry would run
// the handler again in the same transaction, which then commits the writes of each attempt.
// PoisonQueue and IgnoreErrors would commit the writes of the failed attempt. With Guard the
// attempt fails, with the error that the middlewares return, or else with the one that they took.
// The error is recorded, and the inbox or the queue tries again in a new transaction.
//
// Add it last to the handler, or to the router after everything else. The package router does so by
// itself. [Inbox] and [Process] need no Guard against middlewares outside of them. Without a
// transaction, as in a queue that is not transactional, Guard changes nothing: there Retry works as
// Watermill documents. It is safe for concurrent use.
func Guard(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		err = guarded(msg.Context(), func() (err error) {
			produced, err = h(msg)
			return err
		})
		return produced, err
	}
}

// GuardCommands is [Guard] for the command handlers of Watermill's CQRS component. Set it as
// OnHandle of its CommandProcessorConfig: there AckCommandHandlingErrors drops the error of a
// handler before any middleware sees it.
func GuardCommands(params cqrs.CommandProcessorOnHandleParams) error {
	ctx := params.Message.Context()
	return guarded(ctx, func() error { return params.Handler.Handle(ctx, params.Command) })
}

// guarded runs a handler, and tells its transaction and its queue of an error or of a panic.
func guarded(ctx context.Context, handle func() error) error {
	report.From(ctx).Listen()
	defer func() {
		if reason := recover(); reason != nil {
			report.Fail(ctx, fmt.Errorf("panic: %v", reason))
			panic(reason)
		}
	}()
	err := handle()
	if err != nil {
		report.Fail(ctx, err)
	}
	return err
}
