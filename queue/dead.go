package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// buried runs in the transaction that makes a message a dead letter. It publishes the letter, and
// runs the hook after the commit. A letter that can never be published, because it is too large for
// the outbox for example, does not keep the message and its key waiting.
func (q *queue) buried(ctx context.Context, stored *spool.Message, attempts int, cause error) error {
	if q.config.Poison.Outbox != nil {
		msg := q.message(ctx, stored).Copy()
		msg.SetContext(ctx)
		msg.Metadata.Set(middleware.ReasonForPoisonedKey, spool.ErrorText(cause))
		msg.Metadata.Set(middleware.PoisonedTopicKey, q.name)
		msg.Metadata.Set(middleware.PoisonedHandlerKey, q.name)
		msg.Metadata.Set(middleware.PoisonedSubscriberKey, "queue.Subscriber")
		err := spool.Recovered(func() error { return q.config.Poison.Outbox.Publish(q.config.Poison.Topic, msg) })
		switch {
		case verdict.IsPermanent(err):
			q.logger.Error("Poison.Outbox can never take a dead letter: it is among the dead letters, and not published", err,
				watermill.LogFields{"poison_topic": q.config.Poison.Topic, "message_uuid": stored.MessageID})
		case err != nil:
			return fmt.Errorf("publish dead letter to %.300q: %w", q.config.Poison.Topic, err)
		}
	}
	if q.config.OnDead != nil {
		//nolint:contextcheck // the transaction is over by then
		failure := Failure{Queue: q.name, Message: q.message(q.live, stored), Err: cause, Attempts: attempts}
		postbox.AfterCommit(ctx, func() {
			q.telling.left.Add(1)
			q.telling.Go(func() { q.tell(failure) })
		})
	}
	return nil
}

// telling counts the running calls of OnDead.
type telling struct {
	sync.WaitGroup

	left atomic.Int64 // the number of running calls
}

// tell calls the hook and recovers from its panics.
func (q *queue) tell(failure Failure) {
	defer q.telling.left.Add(-1)
	defer func() {
		if reason := recover(); reason != nil {
			q.logger.Error("OnDead of a queue panicked", fmt.Errorf("panic: %v", reason), nil)
		}
	}()
	q.config.OnDead(q.live, failure)
}

// tellingTime is how long the calls of OnDead may take to return after their context has ended.
const tellingTime = 2 * time.Second

// errIgnoresContext is the reason for stopping a queue before a call of OnDead has returned.
var errIgnoresContext = errors.New("OnDead does not return when its context ends")

// awaitTelling waits for the calls of OnDead. A call that ignores the end of its context cannot be
// stopped, so awaitTelling does not wait for it longer than tellingTime.
func (q *queue) awaitTelling() {
	ended := make(chan struct{})
	go func() {
		q.telling.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-q.live.Done():
	}
	select {
	case <-ended:
	case <-time.After(tellingTime):
		q.logger.Error("Postbox stops although calls of OnDead have not returned", errIgnoresContext,
			watermill.LogFields{"calls": q.telling.left.Load()})
	}
}
