package inboxstore

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// buried runs in the transaction that makes a message a dead letter: it publishes the letter, and lets the hook run
// after the commit.
func (q *queue) buried(ctx context.Context, stored *spool.Message, attempts int, cause error) error {
	if q.config.PoisonOutbox != nil {
		msg := q.message(ctx, stored).Copy()
		msg.SetContext(ctx)
		msg.Metadata.Set(middleware.ReasonForPoisonedKey, spool.ErrorText(cause))
		msg.Metadata.Set(middleware.PoisonedTopicKey, q.name)
		msg.Metadata.Set(middleware.PoisonedHandlerKey, q.name)
		msg.Metadata.Set(middleware.PoisonedSubscriberKey, "inboxstore.Subscriber")
		if err := q.config.PoisonOutbox.Publish(q.config.PoisonTopic, msg); err != nil {
			return fmt.Errorf("publish dead letter to %q: %w", q.config.PoisonTopic, err)
		}
	}
	if q.config.OnDead != nil {
		//nolint:contextcheck // the transaction is over by then
		params := DeadParams{Queue: q.name, Message: q.message(q.live, stored), Err: cause, Attempts: attempts}
		postbox.AfterCommit(ctx, func() {
			q.telling.Go(func() { q.tell(params) })
		})
	}
	return nil
}

// tell calls the hook, whose panic is not ours.
func (q *queue) tell(params DeadParams) {
	defer func() {
		if reason := recover(); reason != nil {
			q.logger.Error("QueueConfig.OnDead panicked", fmt.Errorf("panic: %v", reason), nil)
		}
	}()
	q.config.OnDead(q.live, params)
}
