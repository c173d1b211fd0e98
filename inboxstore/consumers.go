package inboxstore

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// errShared explains why two handlers with one consumer are most often a mistake.
var errShared = errors.New("each message has its effect in only one of the two handlers: if their effects differ, give each handler its own InboxConfig.Consumer, and a subscriber with a group or a queue of its own; " +
	"if they do the same and share the topic, one Consumer for both is right")

// maxConsumers bounds the memory if the number of topics grows without limit.
const maxConsumers = 1000

// consumers remembers which handler of a router works for which consumer. The zero value is ready
// to use.
type consumers struct {
	mu       sync.RWMutex
	handlers map[consumer]string
}

// consumer is the scope in which handlers share claims.
type consumer struct{ name, topic string }

// several replaces the handler's name after more than one handler of a consumer has been logged.
const several = ""

// meet records the handler of a consumer. If another handler already works for the same consumer,
// it returns that handler, once for each consumer.
func (c *consumers) meet(of consumer, handler string) (other string, shared bool) {
	c.mu.RLock()
	known, met := c.handlers[of]
	full := len(c.handlers) >= maxConsumers
	c.mu.RUnlock()
	if met && (known == handler || known == several) || full && !met {
		return "", false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch known, met := c.handlers[of]; {
	case !met:
		if c.handlers == nil {
			c.handlers = map[consumer]string{}
		}
		c.handlers[of] = handler
		return "", false
	case known == handler || known == several:
		return "", false
	default:
		c.handlers[of] = several
		return known, true
	}
}

// meetHandler logs that two handlers of a router claim messages as one consumer.
func (s *Store) meetHandler(ctx context.Context, key Key) {
	handler := message.HandlerNameFromCtx(ctx)
	if handler == "" { // outside of a router
		return
	}
	if other, shared := s.consumers.meet(consumer{key.Consumer, key.Topic}, handler); shared {
		s.logger.Error("Postbox found two handlers with the same consumer on one topic", errShared, watermill.LogFields{
			"consumer": key.Consumer, "topic": key.Topic, "handler": handler, "other_handler": other,
		})
	}
}
