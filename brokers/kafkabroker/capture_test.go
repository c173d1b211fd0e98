package kafkabroker_test

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

func TestCapture(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, func(detail *sarama.TopicDetail) { detail.NumPartitions = 1 })
	publisher := newPublisher(t)
	require.NoError(t, publisher.Publish(topic, keyedMessage("customer 7")))
	require.NoError(t, publisher.Publish(topic, message.NewMessage("uuid", nil)))
	subscriber, err := kafka.NewSubscriber(kafkabroker.DefaultSubscriberConfig(kafkaBrokers(t), "group-"+topic), nil)
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	seen := make(chan map[string]string, 2)
	router.AddConsumerHandler("capture", topic, subscriber, func(msg *message.Message) error {
		seen <- kafkabroker.Capture(msg)
		return nil
	})
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(t.Context()) }()

	require.Equal(t, map[string]string{
		kafkabroker.KeyMetadata: "customer 7", kafkabroker.TopicMetadata: topic, kafkabroker.PartitionMetadata: "0", kafkabroker.OffsetMetadata: "0",
	}, <-seen)
	require.Equal(t, map[string]string{
		kafkabroker.KeyMetadata: "uuid", kafkabroker.TopicMetadata: topic, kafkabroker.PartitionMetadata: "0", kafkabroker.OffsetMetadata: "1",
	}, <-seen)
	require.NoError(t, router.Close())
	require.NoError(t, <-stopped)
}

func TestCaptureOutsideKafka(t *testing.T) {
	t.Parallel()
	require.Nil(t, kafkabroker.Capture(message.NewMessage("1", nil)))
}
