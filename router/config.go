package router

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Config says what the handlers of a router share.
type Config struct {
	// Store holds the claims of the inboxes, and the queues. Required.
	Store *inboxstore.Store
	// Outbox takes the messages that handlers return: a forwarder.Publisher, or another one
	// with PublishesInTx. It stays open when the router closes. Handlers with a publish
	// topic need it.
	Outbox message.Publisher

	// Module names this service in the causation path of messages. Every handler then extends the
	// path: see [middleware.Causation]. Defaults to no name, and then there is no path.
	Module string
	// MaxHops is the longest causation path. Defaults to 32.
	MaxHops int

	// LongestRedelivery is the longest time after which one of your brokers may deliver a message
	// again, for example in a replay. The store must remember messages for longer; otherwise a
	// redelivery would be handled as a new message. Defaults to 0, which checks nothing.
	LongestRedelivery time.Duration
	// OtherQueues are queues in the same tables whose handlers run in other processes. It is an
	// error at start if a queue has messages, has no handler here, and is not in this list, since
	// no process would handle its messages.
	OtherQueues []string

	// SharedConsumers allows several inbox handlers of one topic with the same
	// InboxConfig.Consumer, which is otherwise an error. Set it if these handlers do the same, each
	// with a share of the topic that the broker gives it, as members of one consumer group or of
	// one queue. A message that is delivered to one of them and again to another then has its
	// effect once; with a Consumer for each it would have it twice. Handlers with different effects
	// need a Consumer each. The store logs once that two handlers share a consumer, and that this
	// may be intended.
	SharedConsumers bool
}

// validate returns all mistakes in the configuration.
func (c Config) validate() error {
	if c.Store == nil || inbox.CoreOf(c.Store) == nil {
		return errors.New("Store: is nil, or was not made by inboxstore.New")
	}
	var problems []error
	if kept := inbox.CoreOf(c.Store).ClaimRetention; kept > 0 && kept < c.LongestRedelivery {
		problems = append(problems, fmt.Errorf(
			"LongestRedelivery: messages may be delivered again after %s, but the store deletes their claims after %s: set inboxstore.Config.ClaimRetention to a longer time",
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

// QueueConfig says how the messages of a queue are stored and handled.
type QueueConfig struct {
	// Queue is the name of the queue in which the messages are stored. Do not change it later:
	// messages wait under this name. Defaults to the name of the handler.
	Queue string
	// Defer says how messages are identified, and what is stored with them.
	Defer middleware.DeferConfig
	// ReceiptTopic is the topic on which a receipt is published of each message that the handler
	// has handled, under the handler's name: see [middleware.ProcessConfig]. It needs
	// [Config.Outbox]. Defaults to no receipts.
	ReceiptTopic string
	// Worker says how the queue is worked off. A handler with a publish topic or a receipt topic is
	// always transactional.
	Worker queue.Config
}

// BatchConfig says how the messages of a batch handler are stored and handled.
type BatchConfig struct {
	// Queue is the name of the queue in which the messages are stored. Defaults to the name of the
	// handler.
	Queue string
	// Defer says how messages are identified, and what is stored with them.
	Defer middleware.DeferConfig
	// Batch says when a batch is complete, and how it is handled.
	Batch queue.BatchConfig
}
