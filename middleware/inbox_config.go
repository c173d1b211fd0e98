package middleware

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/given"
)

// defaultMaxAttempts is the default of Retry.Attempts in [InboxConfig].
const defaultMaxAttempts = 15

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
	WithoutID func(msg *message.Message) (string, error)

	// Outbox takes the messages that the handler returns, through the transaction in their context: a
	// forwarder.Publisher, or another [postbox.TransactionalPublisher]. Without it, a handler that returns messages fails.
	Outbox message.Publisher
	// PublishTopic is where they go. Defaults to the publish topic of the router's handler.
	PublishTopic string

	// OwnTransaction says that the handler does not write in the transaction in which the subscriber of watermill-sql v4 consumes, so that
	// the inbox may have one of its own. Without it such a message is refused, unless [SubscriberTx] shows that transaction.
	OwnTransaction bool

	// Retry says how often a handler that fails runs, in all processes together, until its message is a dead letter
	// and is acked, and how long the pause is between a failure and its nack, since brokers deliver a nacked message at
	// once. The subscription waits meanwhile; in a transaction that the inbox did not begin there is no pause. Defaults to 15
	// attempts, from 1 s to 60 s apart.
	Retry postbox.RetryProfile
}

func (c *InboxConfig) setDefaults() {
	if c.MessageID == nil {
		c.MessageID = func(msg *message.Message) string { return msg.UUID }
	}
	if c.WithoutID == nil {
		c.WithoutID = RefuseWithoutID
	}
	c.Retry = c.Retry.WithDefaults(defaultMaxAttempts)
}

// validate returns all that is wrong with the configuration.
func (c InboxConfig) validate() error {
	var problems []error
	if err := c.Retry.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("Retry: %w", err))
	}
	if err := given.Outbox(c.Outbox); err != nil {
		problems = append(problems, fmt.Errorf("Outbox: %w", err))
	}
	return errors.Join(problems...)
}
