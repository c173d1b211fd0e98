package kafkabroker

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// A record of whatever producer is read, since one that is refused would come again for ever.
func FuzzMarshaler_Unmarshal(f *testing.F) {
	f.Add([]byte("key"), []byte("value"), []byte("name"), []byte("text"), "id")
	f.Add([]byte(nil), []byte(nil), []byte(nil), []byte(nil), "")
	f.Add([]byte("\x00\xff"), []byte("\xff"), []byte(kafka.UUIDHeaderKey), []byte("\x00"), "other")
	f.Add([]byte("key"), []byte("value"), []byte(postbox.MetadataOrderingKey), []byte(""), "key")
	f.Fuzz(func(t *testing.T, key, value, name, text []byte, id string) {
		record := &sarama.ConsumerMessage{Topic: "orders", Key: key, Value: value, Headers: []*sarama.RecordHeader{
			{Key: []byte(kafka.UUIDHeaderKey), Value: []byte(id)}, {Key: name, Value: text},
		}}
		msg, err := Marshaler().Unmarshal(record)
		require.NoError(t, err)
		require.Equal(t, string(value), string(msg.Payload))
		if string(name) != kafka.UUIDHeaderKey && string(name) != postbox.MetadataOrderingKey {
			require.Equal(t, string(text), msg.Metadata.Get(string(name)))
		}
	})
}

// What was published comes back, whatever bytes it has, and the record's key is never empty.
func FuzzMarshaler_roundtrip(f *testing.F) {
	f.Add("id", []byte("payload"), "key", "value")
	f.Add("", []byte(nil), "\x00", "\xff")
	f.Add("id", []byte("\x00\xff"), postbox.MetadataOrderingKey, "customer")
	f.Add("id", []byte{}, postbox.MetadataOrderingKey, "")
	f.Fuzz(func(t *testing.T, id string, payload []byte, name, text string) {
		sent := message.NewMessage(id, payload)
		sent.Metadata.Set(name, text)
		record, err := Marshaler().Marshal("orders", sent)
		if err != nil {
			require.ErrorIs(t, err, postbox.ErrPermanent)
			return
		}
		key, err := record.Key.Encode()
		require.NoError(t, err)
		require.NotEmpty(t, key)
		value, err := record.Value.Encode()
		require.NoError(t, err)
		received := &sarama.ConsumerMessage{Topic: "orders", Key: key, Value: value}
		for i := range record.Headers {
			received.Headers = append(received.Headers, &record.Headers[i])
		}
		msg, err := Marshaler().Unmarshal(received)
		require.NoError(t, err)
		require.Equal(t, id, msg.UUID)
		require.Equal(t, string(payload), string(msg.Payload))
		if name != postbox.MetadataOrderingKey || text != "" {
			require.Equal(t, text, msg.Metadata.Get(name))
		}
	})
}
