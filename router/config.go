package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Config says what the handlers of a router share.
type Config struct {
	// Store is the memory of the inboxes, and has the queues. Required.
	Store *inboxstore.Store
	// Outbox takes the messages that handlers return: a forwarder.Publisher, or another postbox.TransactionalPublisher, which stays open
	// when the router closes.
	// Needed by handlers with a publish topic.
	Outbox message.Publisher

	// Module names this service in the causation path of messages, which every handler then extends: see
	// [middleware.Causation]. Defaults to none, and no path.
	Module string
	// MaxHops is the longest causation path. Defaults to 32.
	MaxHops int

	// LongestRedelivery is the longest time after which a broker of yours may deliver a message again, be it by a replay.
	// The store must remember messages for longer, or a redelivery would be handled as something new. Defaults to 0,
	// which checks nothing.
	LongestRedelivery time.Duration
	// OtherQueues are queues in the same tables whose handlers run in other processes. A queue that has messages and
	// neither has a handler here nor stands in this list is an error at start, since no process would handle them.
	OtherQueues []string

	// SharedConsumers allows several inbox handlers of one topic with the same InboxConfig.Consumer, which is else an error. Set it if they do the same, each with a
	// share of the topic that the broker gives it, as members of one consumer group or of one queue: a message that is delivered to one and again to another has its effect
	// once, as a Consumer for each would not have it. Handlers with different effects need a Consumer each. The store logs once that it has met two, and that this may be meant.
	SharedConsumers bool
}

// Validate returns all that is wrong with the configuration.
func (c Config) Validate() error {
	if c.Store == nil {
		return errors.New("Store: is nil")
	}
	var problems []error
	if kept := c.Store.ClaimRetention(); kept > 0 && kept < c.LongestRedelivery {
		problems = append(problems, fmt.Errorf(
			"LongestRedelivery: messages may come again after %s, and the store forgets them after %s: set inboxstore.Config.ClaimRetention above it",
			c.LongestRedelivery, kept))
	}
	if c.Module == "" && c.MaxHops != 0 {
		problems = append(problems, errors.New("MaxHops: set Module too"))
	}
	if err := given.Outbox(c.Outbox); err != nil {
		problems = append(problems, fmt.Errorf("Outbox: %w", err))
	}
	return errors.Join(problems...)
}

// QueueConfig says how the handler of a queue is fed and run.
type QueueConfig struct {
	// Queue that the messages are stored in, which is for good: messages wait there under its name. Defaults to the
	// name of the handler.
	Queue string
	// Defer says how messages are told apart, and what is stored with them.
	Defer middleware.DeferConfig
	// QueueConfig says how the queue is worked off. A handler with a publish topic is always transactional.
	QueueConfig queue.Config
}

// BatchConfig says how a batch handler is fed and run.
type BatchConfig struct {
	// Queue that the messages are stored in. Defaults to the name of the handler.
	Queue string
	// Defer says how messages are told apart, and what is stored with them.
	Defer middleware.DeferConfig
	// Batch says when messages are a batch, and how it is handled.
	Batch queue.BatchConfig
}
