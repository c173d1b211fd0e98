package kafkabroker

import (
	"fmt"

	"github.com/IBM/sarama"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Marshaler returns the marshaler of [DefaultPublisherConfig] and [DefaultSubscriberConfig]. It
// writes records as kafka.DefaultMarshaler does, UUID and metadata in the headers, and adds the
// record's key.
//
// Publishing, the key is the message's ordering key (metadata partition_key), else its UUID, else a
// random one. It is never empty, since an empty key is a key too: all messages with it would share
// one partition. A message that cannot be written as a record gives a [postbox.Permanent] error.
//
// Receiving, a record whose headers hold no ordering key gets its record key as such, unless that
// is just the UUID. A record without a UUID header, from a producer that is not Watermill, keeps an
// empty UUID. No record is refused: watermill-kafka would read a refused one again for ever.
//
// It holds no state and can be used concurrently.
func Marshaler() kafka.MarshalerUnmarshaler { return marshaler{} }

type marshaler struct{ headers kafka.DefaultMarshaler }

// Marshal implements kafka.Marshaler.
func (m marshaler) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	record, err := m.headers.Marshal(topic, msg)
	if err != nil {
		return nil, postbox.Permanent(fmt.Errorf("marshal message %.60q for topic %.300q: %w", msg.UUID, topic, err))
	}
	record.Key = sarama.StringEncoder(recordKey(msg))
	return record, nil
}

// Unmarshal implements kafka.Unmarshaler.
func (m marshaler) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	msg, err := m.headers.Unmarshal(record)
	if err != nil {
		return nil, fmt.Errorf("unmarshal record %s/%d/%d: %w", record.Topic, record.Partition, record.Offset, err)
	}
	key := string(record.Key)
	if msg.Metadata.Get(postbox.MetadataOrderingKey) == "" && key != "" && key != msg.UUID {
		msg.Metadata.Set(postbox.MetadataOrderingKey, key)
	}
	return msg, nil
}

func recordKey(msg *message.Message) string {
	if key := msg.Metadata.Get(postbox.MetadataOrderingKey); key != "" {
		return key
	}
	if msg.UUID != "" {
		return msg.UUID
	}
	return postbox.NewMessageID()
}
