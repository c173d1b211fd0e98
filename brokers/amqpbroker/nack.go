package amqpbroker

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// DelayNack returns a middleware that waits before it passes a handler's error on. Without it,
// RabbitMQ delivers a nacked message again at once, thousands of times a second while the handler's
// database is away. Put it outside the inbox, that is before the inbox in the router's list.
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
