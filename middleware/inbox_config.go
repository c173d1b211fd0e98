package middleware

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Defaults of the settings in [InboxConfig], which explains them.
const (
	DefaultMaxAttempts = 15
	DefaultBackoffBase = time.Second
	DefaultBackoffCap  = time.Minute
)

// Unlimited is the MaxAttempts that lets a message be tried for ever.
const Unlimited = -1

// InboxConfig says how an inbox tells messages apart and what it does with failures.
type InboxConfig struct {
	// Consumer is who handles: a message has one effect a consumer. Defaults to the name of the router's handler.
	// Keep it when you rename the handler, or everything is new to it.
	Consumer string
	// Topic within which message ids differ. Defaults to the topic that the router's handler subscribes to.
	Topic string
	// MessageID returns the id of a message, "" when it has none. Defaults to its UUID.
	MessageID func(msg *message.Message) string
	// WithoutID names a message that has no id. Defaults to [RefuseWithoutID].
	WithoutID NameWithoutID

	// Outbox takes the messages that the handler returns, through the transaction in their context: a
	// forwarder.Publisher. Without it, a handler that returns messages fails.
	Outbox message.Publisher
	// PublishTopic is where they go. Defaults to the publish topic of the router's handler.
	PublishTopic string

	// MaxAttempts is the number of failures, in all processes together, after which a message is a dead letter and
	// is acked. Defaults to 15; [Unlimited] never gives up.
	MaxAttempts int
	// BackoffBase and BackoffCap bound the pause between a failure and its nack, since brokers deliver a nacked
	// message at once: the base doubled by each failure up to the cap, of which a random part is taken. The
	// subscription waits meanwhile. Default to 1 s and 60 s. In a transaction of somebody else there is no pause.
	BackoffBase, BackoffCap time.Duration
}

func (c *InboxConfig) setDefaults() {
	if c.MessageID == nil {
		c.MessageID = func(msg *message.Message) string { return msg.UUID }
	}
	if c.WithoutID == nil {
		c.WithoutID = RefuseWithoutID
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = DefaultMaxAttempts
	}
	if c.MaxAttempts == Unlimited {
		c.MaxAttempts = math.MaxInt
	}
	if c.BackoffBase == 0 {
		c.BackoffBase = DefaultBackoffBase
	}
	if c.BackoffCap == 0 {
		c.BackoffCap = max(DefaultBackoffCap, c.BackoffBase)
	}
}

// Validate returns all that is wrong with the configuration.
func (c InboxConfig) Validate() error {
	var problems []error
	if c.MaxAttempts < 0 && c.MaxAttempts != Unlimited {
		problems = append(problems, fmt.Errorf("MaxAttempts: %d is negative, use middleware.Unlimited", c.MaxAttempts))
	}
	if c.BackoffBase < 0 || c.BackoffCap < c.BackoffBase {
		problems = append(problems, fmt.Errorf("BackoffBase and BackoffCap: %s and %s are not in order", c.BackoffBase, c.BackoffCap))
	}
	return errors.Join(problems...)
}
