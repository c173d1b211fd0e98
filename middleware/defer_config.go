package middleware

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/retries"
)

// defaultDeferPause is the default of Retry.Cap in [DeferConfig]: a database that is back should
// not wait for long.
const defaultDeferPause = 10 * time.Second

// DeferConfig says how messages that go to a queue are identified, and what is stored with them.
type DeferConfig struct {
	// Topic is the topic within which each message has its own id. Defaults to the topic that the
	// router's handler subscribes to.
	Topic string
	// MessageID returns the id of a message, "" when it has none. Defaults to its UUID.
	MessageID func(msg *message.Message) string
	// WithoutID names a message that has no id: see kafkabroker.Coordinates and [PayloadHash]. By
	// default each delivery of such a message becomes a dead letter, since any name can be wrong.
	WithoutID func(msg *message.Message) (string, error)

	// Capture returns what the broker knows of a message and the message does not carry, as
	// kafkabroker.Capture does. It is stored in the metadata, and replaces what the message has
	// there. Defaults to nothing.
	Capture func(msg *message.Message) map[string]string
	// OrderingKey returns the key of a message; messages without one ("") are in no order. Defaults
	// to the metadata [postbox.MetadataOrderingKey], else the kafkabroker.KeyMetadata that
	// Capture returned, unless that is the UUID.
	OrderingKey func(msg *message.Message) string

	// Retry sets the pause between a failure to store a message and its nack, since brokers deliver
	// a nacked message at once. The pause grows with each failure in a row, of any message. The
	// subscription waits meanwhile. In a transaction that Postbox did not begin there is no pause.
	// Attempts are not counted, since the database is at fault. Defaults to up to 1 s, later 10 s.
	Retry postbox.RetryProfile
}

func (c *DeferConfig) setDefaults() {
	if c.MessageID == nil {
		c.MessageID = func(msg *message.Message) string { return msg.UUID }
	}
	if c.Capture == nil {
		c.Capture = func(*message.Message) map[string]string { return nil }
	}
	c.Retry.Cap = cmp.Or(c.Retry.Cap, max(defaultDeferPause, c.Retry.Base))
	c.Retry = retries.WithDefaults(c.Retry, defaultMaxAttempts)
}

// validate returns all mistakes in the configuration.
func (c DeferConfig) validate() error {
	if err := retries.Validate(c.Retry); err != nil {
		return fmt.Errorf("Retry: %w", err)
	}
	return nil
}
