package kafkabroker_test

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

func TestRecordKey(t *testing.T) {
	t.Parallel()
	keyOf := func(msg *message.Message) string {
		record, err := kafkabroker.Marshaler().Marshal("topic", msg)
		require.NoError(t, err)
		key, err := record.Key.Encode()
		require.NoError(t, err)
		return string(key)
	}
	require.Equal(t, "k", keyOf(keyedMessage("k")))
	require.Equal(t, "id", keyOf(message.NewMessage("id", nil)))
	require.Equal(t, "id", keyOf(&message.Message{UUID: "id"}), "no metadata at all")

	first, second := keyOf(message.NewMessage("", nil)), keyOf(message.NewMessage("", nil))
	require.NotEmpty(t, first)
	require.NotEqual(t, first, second)
}

func TestMessageThatNoRecordCanHoldIsAtFault(t *testing.T) {
	t.Parallel()
	msg := message.NewMessage("id", nil)
	msg.Metadata.Set(kafka.UUIDHeaderKey, "reserved")
	_, err := kafkabroker.Marshaler().Marshal("topic", msg)
	require.Error(t, err)
	require.Equal(t, postbox.MessageFault, kafkabroker.Classify(err))
}

func TestUnmarshalTakesTheOrderingKeyFromTheRecord(t *testing.T) {
	t.Parallel()
	id := &sarama.RecordHeader{Key: []byte(kafka.UUIDHeaderKey), Value: []byte("id")}
	key := &sarama.RecordHeader{Key: []byte(postbox.MetadataOrderingKey), Value: []byte("from metadata")}
	for name, test := range map[string]struct {
		headers   []*sarama.RecordHeader
		recordKey string
		uuid, key string
	}{
		"metadata wins":         {[]*sarama.RecordHeader{id, key}, "record", "id", "from metadata"},
		"record key":            {[]*sarama.RecordHeader{id}, "record", "id", "record"},
		"the UUID is no key":    {[]*sarama.RecordHeader{id}, "id", "id", ""},
		"foreign":               {nil, "record", "", "record"},
		"foreign without a key": {nil, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg, err := kafkabroker.Marshaler().Unmarshal(&sarama.ConsumerMessage{
				Headers: test.headers, Key: []byte(test.recordKey), Value: []byte("payload"),
			})
			require.NoError(t, err)
			require.Equal(t, test.uuid, msg.UUID)
			require.Equal(t, test.key, msg.Metadata.Get(postbox.MetadataOrderingKey))
			require.Equal(t, "payload", string(msg.Payload))
		})
	}
}

func TestMarshalerKeepsAnyMetadata(t *testing.T) {
	t.Parallel()
	sent := keyedMessage("\x00 \xff")
	sent.Metadata.Set("", "empty name")
	sent.Metadata.Set("naïve\n", "\xfe\x00")
	record, err := kafkabroker.Marshaler().Marshal("topic", sent)
	require.NoError(t, err)

	headers := make([]*sarama.RecordHeader, len(record.Headers))
	for i := range record.Headers {
		headers[i] = &record.Headers[i]
	}
	got, err := kafkabroker.Marshaler().Unmarshal(&sarama.ConsumerMessage{Headers: headers, Value: sent.Payload})
	require.NoError(t, err)
	require.True(t, sent.Equals(got))
}
