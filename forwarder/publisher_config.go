package forwarder

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// PublisherConfig says how messages are written to the outbox. The zero value has all defaults.
type PublisherConfig struct {
	// Outbox is the name of the outbox; a database can have several. Defaults to "outbox".
	Outbox string
	// OrderingKey returns the key of a message; messages without one ("") are in no order. It
	// travels as the metadata [postbox.MetadataOrderingKey]. Defaults to reading that metadata.
	OrderingKey func(topic string, msg *message.Message) string
	// MaxPayload is the largest total of payload and metadata, in bytes; a larger message is an
	// error. Defaults to 16 MiB. MySQL needs a max_allowed_packet above it.
	MaxPayload int
	// Receipts says from which consumers the producer awaits receipts: see package receipts, whose
	// Receiver takes them. For each message and consumer, Publish writes one row more, in the same
	// transaction: one INSERT for up to 64 rows, on SQLite for up to 8. Processes that write to a
	// topic should have the same value. Defaults to none, which costs nothing.
	Receipts []Expectation
	// AllowAutocommit lets a message without a transaction in its context be committed by itself.
	// By default that is [postbox.ErrNoTransaction], because most often the context was forgotten.
	AllowAutocommit bool
	// DisableNotify turns off wake-ups for the forwarders of other processes on PostgreSQL, which
	// then find messages by polling. It saves up to four NOTIFYs a second.
	DisableNotify bool
}

func (c *PublisherConfig) setDefaults() {
	c.Outbox = cmp.Or(c.Outbox, defaultOutbox)
	c.MaxPayload = cmp.Or(c.MaxPayload, defaultMaxPayload)
	if c.OrderingKey == nil {
		c.OrderingKey = func(_ string, msg *message.Message) string { return msg.Metadata.Get(postbox.MetadataOrderingKey) }
	}
}

// validate returns all that is wrong with the configuration.
func (c PublisherConfig) validate() error {
	err := validateOutbox(c.Outbox)
	if c.MaxPayload < 0 {
		err = errors.Join(err, fmt.Errorf("max payload: %d bytes is negative", c.MaxPayload))
	}
	return errors.Join(err, validateExpectations(c.Receipts))
}
