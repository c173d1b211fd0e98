package kafkabroker

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Metadata keys under which [Capture] returns the place of a message in Kafka.
const (
	// KeyMetadata holds the key of the record.
	KeyMetadata = "kafka_key" // middleware.Defer reads it: spool.KafkaKey
	// TopicMetadata holds the topic.
	TopicMetadata = "kafka_topic"
	// PartitionMetadata holds the number of the partition.
	PartitionMetadata = "kafka_partition"
	// OffsetMetadata holds the offset within the partition.
	OffsetMetadata = "kafka_offset"
)

// Capture returns the data that Kafka has about a received message and that the message does not
// carry: the record's key, if it has one, its topic, partition and offset. Give Capture to
// middleware.DeferConfig; otherwise these data are lost when the message is stored. It returns nil
// for a message that did not come through watermill-kafka. Outside a Watermill router it does not
// know the topic.
func Capture(msg *message.Message) map[string]string {
	ctx := msg.Context()
	partition, hasPartition := kafka.MessagePartitionFromCtx(ctx)
	offset, hasOffset := kafka.MessagePartitionOffsetFromCtx(ctx)
	if !hasPartition || !hasOffset {
		return nil
	}
	captured := map[string]string{
		PartitionMetadata: strconv.FormatInt(int64(partition), 10),
		OffsetMetadata:    strconv.FormatInt(offset, 10),
	}
	if key, ok := kafka.MessageKeyFromCtx(ctx); ok && len(key) > 0 {
		captured[KeyMetadata] = string(key)
	}
	if topic := message.SubscribeTopicFromCtx(ctx); topic != "" {
		captured[TopicMetadata] = topic
	}
	return captured
}
