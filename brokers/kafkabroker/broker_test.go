package kafkabroker_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// patience is how long a test waits for what should happen soon.
const patience = 30 * time.Second

// kafkaBrokers returns the addresses of a real Kafka, or skips the test.
func kafkaBrokers(t *testing.T) []string {
	t.Helper()
	brokers := os.Getenv("TEST_KAFKA_BROKERS")
	if brokers == "" {
		t.Skip("TEST_KAFKA_BROKERS is not set: run through scripts/services")
	}
	return strings.Split(brokers, ",")
}

// newTopic creates a topic of the test's own through SubscribeInitialize, and waits until it has a leader.
func newTopic(t *testing.T, change func(*sarama.TopicDetail)) string {
	t.Helper()
	config := kafkabroker.SubscriberConfig(kafkaBrokers(t), "setup")
	if change != nil {
		change(config.InitializeTopicDetails)
	}
	subscriber, err := kafka.NewSubscriber(config, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, subscriber.Close()) }()

	topic := "test-" + watermill.NewUUID()
	require.NoError(t, subscriber.SubscribeInitialize(topic))
	require.Eventually(t, func() bool {
		offsets, err := subscriber.PartitionOffset(topic)
		return err == nil && len(offsets) == int(config.InitializeTopicDetails.NumPartitions)
	}, patience, 20*time.Millisecond, "topic %s is not there", topic)
	return topic
}

func newPublisher(t *testing.T) *kafka.Publisher {
	t.Helper()
	publisher, err := kafka.NewPublisher(kafkabroker.PublisherConfig(kafkaBrokers(t)), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	return publisher
}

func subscribe(t *testing.T, topic string) <-chan *message.Message {
	t.Helper()
	subscriber, err := kafka.NewSubscriber(kafkabroker.SubscriberConfig(kafkaBrokers(t), "group-"+topic), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) })
	messages, err := subscriber.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	return messages
}

// received is what a test looks at in a delivered message.
type received struct {
	message   *message.Message
	recordKey string
	partition int32
}

// receive takes and acks n messages.
func receive(t *testing.T, messages <-chan *message.Message, n int) []received {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all := make([]received, 0, n)
	for len(all) < n {
		select {
		case msg := <-messages:
			key, _ := kafka.MessageKeyFromCtx(msg.Context())
			partition, _ := kafka.MessagePartitionFromCtx(msg.Context())
			all = append(all, received{message: msg, recordKey: string(key), partition: partition})
			msg.Ack()
		case <-deadline.Done():
			require.Failf(t, "messages are missing", "%d of %d arrived", len(all), n)
		}
	}
	return all
}

func keyedMessage(key string) *message.Message {
	msg := message.NewMessage(postbox.NewMessageID(), []byte("payload"))
	msg.Metadata.Set(postbox.OrderingKey, key)
	return msg
}
