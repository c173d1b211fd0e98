package amqpbroker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Marshaler writes messages as amqp.DefaultMarshaler does, and reads every message that RabbitMQ
// can deliver. The default one fails on a header that is not a string; the message is then requeued
// at once and fails again, for ever. RabbitMQ itself adds such headers: x-delivery-count on quorum
// queues, x-death on dead letters.
//
// A header that is not a string becomes a readable one: numbers in decimal, times in RFC 3339 and
// UTC, bytes as they are, tables and arrays as JSON, and a header without a value as the empty
// string.
//
// The UUID is in the header that Watermill uses and in AMQP's property message-id, which other
// clients use. A message without that header, from a producer that is not Watermill, gets the
// property as its UUID, and an empty one if it has neither.
//
// The zero value is ready to use. It holds no state of its own and can be used concurrently.
type Marshaler struct {
	// DefaultMarshaler has the settings: PostprocessPublishing, NotPersistentDeliveryMode and
	// MessageUUIDHeaderKey.
	amqp.DefaultMarshaler
}

var _ amqp.Marshaler = Marshaler{}

// maxProperty is the largest size in bytes of a property of AMQP.
const maxProperty = 255

// Marshal implements amqp.Marshaler.
func (m Marshaler) Marshal(msg *message.Message) (amqp091.Publishing, error) {
	publishing, err := m.DefaultMarshaler.Marshal(msg)
	if err == nil && publishing.MessageId == "" && len(msg.UUID) <= maxProperty {
		publishing.MessageId = msg.UUID
	}
	return publishing, err
}

// errEnded makes watermill-amqp's subscriber subscribe again.
var errEnded = errors.New("the subscription has ended")

// Unmarshal implements amqp.Marshaler. It fails only for the zero delivery, which RabbitMQ never
// sends: watermill-amqp reads it from a subscription that has ended, with its connection or with
// its queue, and would hand it out as an empty message.
func (m Marshaler) Unmarshal(delivery amqp091.Delivery) (*message.Message, error) {
	if delivery.Acknowledger == nil && delivery.Headers == nil && delivery.Body == nil {
		return nil, errEnded
	}
	uuidHeader := m.MessageUUIDHeaderKey
	if uuidHeader == "" {
		uuidHeader = amqp.DefaultMessageUUIDHeaderKey
	}
	id := cmp.Or(readable(delivery.Headers[uuidHeader]), delivery.MessageId)
	msg := message.NewMessage(id, delivery.Body)
	for name, value := range delivery.Headers {
		if name != uuidHeader {
			msg.Metadata.Set(name, readable(value))
		}
	}
	return msg, nil
}

// readable returns a header's value as a string.
func readable(value any) string {
	switch plain := asJSON(value).(type) {
	case nil:
		return ""
	case string:
		return plain
	case json.Number:
		return plain.String()
	default:
		text, err := json.Marshal(plain)
		if err != nil {
			return fmt.Sprint(plain)
		}
		return string(text)
	}
}

// asJSON turns a value of an AMQP table into one that encoding/json writes readably.
func asJSON(value any) any {
	switch v := value.(type) {
	case []byte:
		return string(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case amqp091.Decimal:
		return json.Number(decimal(v))
	case float32:
		return number(float64(v), 32)
	case float64:
		return number(v, 64)
	case amqp091.Table:
		object := make(map[string]any, len(v))
		for name, field := range v {
			object[name] = asJSON(field)
		}
		return object
	case []any:
		array := make([]any, len(v))
		for i, element := range v {
			array[i] = asJSON(element)
		}
		return array
	default:
		return value
	}
}

// number writes a float; JSON has no numbers for infinity and NaN, so they become strings.
func number(v float64, bits int) any {
	text := strconv.FormatFloat(v, 'g', -1, bits)
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return text
	}
	return json.Number(text)
}

// decimal writes an AMQP decimal: an integer and the number of its digits that stand behind the
// point.
func decimal(v amqp091.Decimal) string {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(v.Scale)), nil)
	return new(big.Rat).SetFrac(big.NewInt(int64(v.Value)), power).FloatString(int(v.Scale))
}
