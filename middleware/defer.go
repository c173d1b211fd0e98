package middleware

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// DeferStore is what [Defer] needs; [inboxstore.Store] does it in SQL.
type DeferStore interface {
	// Defer stores a message in a queue, once.
	Defer(ctx context.Context, queue string, key inboxstore.Key, msg *message.Message) (fresh bool, err error)
}

// Defer returns a middleware that stores each message in a queue and acks it, instead of running the handler: an
// [inboxstore.Subscriber] gives it to another handler later. The broker hears its ack after the commit, and its
// time-outs do not matter any more. A message that comes again is stored once.
//
// The message needs a UUID; a message without one is refused with [ErrNoMessageID].
func Defer(store DeferStore, queue string) message.HandlerMiddleware {
	return func(message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "" {
				return nil, ErrNoMessageID
			}
			ctx := msg.Context()
			key := inboxstore.Key{Consumer: "queue " + queue, Topic: message.SubscribeTopicFromCtx(ctx), MessageID: msg.UUID}
			_, err := store.Defer(ctx, queue, key, msg)
			return nil, err
		}
	}
}
