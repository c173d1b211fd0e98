package kafkabroker

import (
	"github.com/IBM/sarama"

	"github.com/ThreeDotsLabs/watermill"
)

// PublisherOn returns a publisher that sends through that producer.
func PublisherOn(producer sarama.SyncProducer) *Publisher {
	return &Publisher{marshaler: Marshaler(), producer: producer, logger: watermill.NopLogger{}}
}

// DefaultPartitions is the number of partitions of a new topic.
const DefaultPartitions = defaultPartitions
