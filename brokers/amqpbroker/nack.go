package amqpbroker

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// DelayNack returns a middleware for handlers without an inbox: it waits before it passes a
// handler's error on. Without it, RabbitMQ delivers a nacked message again at once, thousands of
// times a second while what the handler needs is away. An inbox and middleware.Defer pause by
// themselves, so around them it only adds to the pause.
//
// During the wait the subscription handles no other message, so order is kept. The wait ends early
// when the message's context ends, as it does when the router closes.
func DelayNack(delay time.Duration) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err == nil {
				return produced, nil
			}
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-msg.Context().Done():
			}
			return produced, err
		}
	}
}
