package kafkabroker_test

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

func TestTopic_without_compression_takes_no_batch_that_would_unpack_above_its_limit(t *testing.T) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_1_0_0
	config.Producer.Return.Successes = true
	config.Producer.Compression = sarama.CompressionZSTD
	config.Producer.MaxMessageBytes = 64 << 20
	config.Producer.Retry.Max = 0
	producer, err := sarama.NewSyncProducer(kafkaBrokers(t), config)
	require.NoError(t, err)
	defer func() { require.NoError(t, producer.Close()) }()
	needsRefusals(t)
	send := func(compression string) error {
		topic := newTopic(t, func(detail *sarama.TopicDetail) {
			detail.NumPartitions = 1
			detail.ConfigEntries = map[string]*string{"compression.type": &compression}
		})
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(make([]byte, 16<<20))})
		return err
	}

	require.NoError(t, send("producer"), "Kafka looks at the size before it is unpacked")
	require.ErrorIs(t, send("uncompressed"), sarama.ErrMessageSizeTooLarge)
}
