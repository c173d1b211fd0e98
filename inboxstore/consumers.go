package inboxstore

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// errShared is why two handlers with one consumer are most often a mistake.
var errShared = errors.New("each message has its effect in one of the two handlers only: for two different effects give each an InboxConfig.Consumer of its own; " +
	"two that do the same, each with a share of the topic, are meant to have the same one")

// maxConsumers bounds the memory, for topics without end.
const maxConsumers = 1000

// consumers remembers which handler of a router works for which consumer. The zero value is ready to use.
type consumers struct {
	mu       sync.RWMutex
	handlers map[consumer]string
}

// consumer is what claims are shared in.
type consumer struct{ name, topic string }

// several stands for the handler of a consumer of which more than one has been logged.
const several = ""

// meet notes the handler, and returns the one that works for the same consumer, if that is another one: once for each consumer.
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

// meetHandler logs where two handlers of a router claim messages as one consumer.
func (s *Store) meetHandler(ctx context.Context, key Key) {
	handler := message.HandlerNameFromCtx(ctx)
	if handler == "" { // outside of a router
		return
	}
	if other, shared := s.consumers.meet(consumer{key.Consumer, key.Topic}, handler); shared {
		s.logger.Error("Postbox has met two handlers with the same consumer on one topic", errShared, watermill.LogFields{
			"consumer": key.Consumer, "topic": key.Topic, "handler": handler, "other_handler": other,
		})
	}
}
