package middleware

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// SlowNack is a middleware that returns an error no sooner than the given time after the message came. Most brokers deliver a nacked message at once,
// so a middleware that fails without running the handler, such as Watermill's CircuitBreaker while it is open, makes a hot loop of nacks. Add SlowNack
// before it. An inbox pauses by itself, and that counts: where it took longer, SlowNack adds nothing.
//
// The subscription waits meanwhile. The pause ends with the message's context, and there is none in a transaction of somebody else.
// It is safe for concurrent use by any number of handlers.
func SlowNack(least time.Duration) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx, came := msg.Context(), time.Now()
			produced, err := h(msg)
			if err == nil {
				return produced, nil
			}
			if _, joined := postbox.TxFromContext(ctx); !joined {
				rest(ctx, least-time.Since(came))
			}
			return produced, err
		}
	}
}
