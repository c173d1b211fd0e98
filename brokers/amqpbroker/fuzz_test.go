package amqpbroker

import (
	"math"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
)

// A delivery with any header that AMQP has is read, since one that is refused would come again for
// ever.
func FuzzMarshaler_Unmarshal(f *testing.F) {
	f.Add("name", []byte("text"), int64(1), 0.5, uint8(2))
	f.Add("", []byte(nil), int64(math.MinInt64), math.Inf(1), uint8(255))
	f.Add(amqp.DefaultMessageUUIDHeaderKey, []byte("\x00\xff"), int64(math.MaxInt64), math.NaN(), uint8(0))
	f.Fuzz(func(t *testing.T, name string, raw []byte, number int64, fraction float64, scale uint8) {
		values := []any{
			nil, true, raw, string(raw), number, int32(number), int16(number), uint8(number), //nolint:gosec // any number will do
			fraction, float32(fraction), time.Unix(number, 0), amqp091.Decimal{Scale: scale, Value: int32(number)}, //nolint:gosec // any number will do
		}
		values = append(values, amqp091.Table{string(raw): values, name: amqp091.Table{}}, []any{values, []any{}})
		for _, value := range values {
			headers := amqp091.Table{name: value}
			require.NoError(t, headers.Validate())
			msg, err := Marshaler{}.Unmarshal(amqp091.Delivery{Headers: headers, Body: raw})
			require.NoError(t, err)
			require.Equal(t, string(raw), string(msg.Payload))
			if text, isText := value.(string); isText && name != amqp.DefaultMessageUUIDHeaderKey {
				require.Equal(t, text, msg.Metadata.Get(name))
			}
		}
	})
}

// What was published comes back, whatever bytes it has.
func FuzzMarshaler_roundtrip(f *testing.F) {
	f.Add("id", []byte("payload"), "key", "value")
	f.Add("", []byte(nil), "\x00", "\xff")
	f.Fuzz(func(t *testing.T, id string, payload []byte, name, text string) {
		if name == amqp.DefaultMessageUUIDHeaderKey {
			return // the header that carries the UUID
		}
		sent := message.NewMessage(id, payload)
		sent.Metadata.Set(name, text)
		batch, err := encode(Marshaler{}, []*message.Message{sent})
		if err != nil {
			require.ErrorIs(t, err, errMessageRefused)
			return
		}
		publishing := batch[0].publishing
		require.Positive(t, fieldSize(publishing.Headers))
		msg, err := Marshaler{}.Unmarshal(amqp091.Delivery{Headers: publishing.Headers, Body: publishing.Body})
		require.NoError(t, err)
		require.Equal(t, id, msg.UUID)
		require.Equal(t, string(payload), string(msg.Payload))
		require.Equal(t, text, msg.Metadata.Get(name))
	})
}
