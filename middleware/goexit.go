package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/report"
)

// errGoexit is the error of a handler that ended its goroutine. Nothing can stop that, and
// Watermill's router then neither acks nor nacks the message.
var errGoexit = errors.New("the handler ended its goroutine with runtime.Goexit, as FailNow of a test does")

type insideKey struct{}

// inside returns the context of a message that an inbox handles.
func inside(ctx context.Context, msg *message.Message) context.Context {
	return context.WithValue(ctx, insideKey{}, msg)
}

// insideOf returns the message that the innermost inbox around ctx handles, or nil.
func insideOf(ctx context.Context) *message.Message {
	msg, _ := ctx.Value(insideKey{}).(*message.Message)
	return msg
}

// exited tells the queue that the handler of a message ended its goroutine, and nacks the message,
// since the router does not. If an inbox stands around the handler, the inbox does so when it has
// recorded the failure.
func exited(ctx context.Context, msg *message.Message) {
	report.Fail(ctx, errGoexit)
	if insideOf(ctx) != msg {
		msg.Nack()
	}
}

// unreturned is deferred around a handler: if the handler panics or ends its goroutine, it fails
// the handler's transaction.
func unreturned(ctx context.Context, msg *message.Message, returned *bool) {
	if *returned {
		return
	}
	if reason := recover(); reason != nil {
		report.Fail(ctx, fmt.Errorf("panic: %v", reason))
		panic(reason)
	}
	exited(ctx, msg)
}

// exited records the failure of a handler that ended its goroutine, and acks or nacks the message,
// since the router then does neither. A dead letter that was written in a transaction that the
// inbox did not begin may be rolled back, so in that case the message is nacked; otherwise it would
// be a duplicate. If an inbox around this one handles the message too, the outer inbox does all of
// this.
func (i *Inbox) exited(ctx context.Context, key inboxstore.Key, came delivered, msg *message.Message) {
	if insideOf(ctx) == msg {
		return
	}
	if !stopping(ctx) {
		attempts, err := i.failed(ctx, key, came, errGoexit)
		i.brake.ended(ctx, attempts, err)
		if _, joined := postbox.TxFromContext(ctx); err == nil && !joined {
			msg.Ack()
			return
		}
		i.logger.Error("Postbox nacks a message whose handler ended its goroutine", cmp.Or(err, errGoexit), fields(key, msg))
	}
	report.Fail(ctx, errGoexit)
	msg.Nack()
}
