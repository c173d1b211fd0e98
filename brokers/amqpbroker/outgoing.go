package amqpbroker

import (
	"context"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// shortString is the largest number of bytes of a name or property in AMQP. The client silently
// cuts off longer ones, so that a message would arrive under another name or not at all.
const shortString = 255

// destination is where a topic leads.
type destination struct {
	exchange   string
	routingKey string
	mandatory  bool
}

// String names the destination in errors.
func (d destination) String() string {
	if d.exchange == "" {
		return fmt.Sprintf("queue %.300q", d.routingKey)
	}
	return fmt.Sprintf("exchange %.300q", d.exchange)
}

func (d destination) validate() error {
	if len(d.exchange) > shortString || len(d.routingKey) > shortString {
		return fmt.Errorf("%w: name of %.40s… has more than %d bytes", errMessageRefused, d, shortString)
	}
	return nil
}

// outgoing is a message ready to be sent.
type outgoing struct {
	id         string
	key        string          // ordering key, may be empty
	ctx        context.Context //nolint:containedctx // a Watermill message carries its context
	publishing amqp091.Publishing
}

func encode(marshaler amqp.Marshaler, messages []*message.Message) ([]outgoing, error) {
	batch := make([]outgoing, len(messages))
	for i, msg := range messages {
		publishing, err := marshaler.Marshal(msg)
		if err == nil {
			err = validatePublishing(publishing)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: message %.60q: %w", errMessageRefused, msg.UUID, err)
		}
		batch[i] = outgoing{
			id:         msg.UUID,
			key:        msg.Metadata.Get(postbox.MetadataOrderingKey),
			ctx:        msg.Context(),
			publishing: publishing,
		}
	}
	return batch, nil
}

func validatePublishing(p amqp091.Publishing) error {
	for name := range p.Headers {
		if len(name) > shortString {
			return fmt.Errorf("name of header %.40q… has more than %d bytes", name, shortString)
		}
	}
	for _, property := range properties(p) {
		if len(property) > shortString {
			return fmt.Errorf("a property has %d bytes, more than %d", len(property), shortString)
		}
	}
	return p.Headers.Validate()
}

func properties(p amqp091.Publishing) []string {
	return []string{
		p.ContentType, p.ContentEncoding, p.CorrelationId, p.ReplyTo, p.Expiration, p.MessageId, p.Type, p.UserId, p.AppId,
	}
}

// fits checks that the headers fit into one frame, as AMQP demands; a larger frame makes RabbitMQ
// close the connection, for all messages on it. The body may take any number of frames.
func (o outgoing) fits(frameSize int) error {
	// Frame: 8 bytes around it. Content header: class, weight, body size and property flags in 14
	// bytes. Properties of a fixed size, at most: delivery mode, priority and timestamp in 10
	// bytes.
	size := 8 + 14 + 10 + fieldSize(o.publishing.Headers)
	for _, property := range properties(o.publishing) {
		size += 1 + len(property)
	}
	if frameSize > 0 && size > frameSize {
		return fmt.Errorf("%w: message %.60q: %d bytes of metadata do not fit into a frame of %d bytes", errMessageRefused, o.id, size, frameSize)
	}
	return nil
}

// fieldSize returns the encoded size of a header's value, without the byte that names its type.
func fieldSize(value any) int {
	const longString, widest = 4, 8
	switch v := value.(type) {
	case string:
		return longString + len(v)
	case []byte:
		return longString + len(v)
	case amqp091.Table:
		size := longString
		for name, field := range v {
			size += 1 + len(name) + 1 + fieldSize(field)
		}
		return size
	case []any:
		size := longString
		for _, element := range v {
			size += 1 + fieldSize(element)
		}
		return size
	default:
		return widest
	}
}

// nextWindow cuts a window off a batch: as long as allowed, and at most one message of each key.
// Some messages of a window may be confirmed and others not. With two messages of a key in it, the
// later one could then overtake the earlier one that has to be sent again.
func nextWindow(batch []outgoing) (window, rest []outgoing) {
	keys := make(map[string]bool)
	for i, out := range batch {
		if i == maxWindow || keys[out.key] {
			return batch[:i], batch[i:]
		}
		if out.key != "" {
			keys[out.key] = true
		}
	}
	return batch, nil
}
