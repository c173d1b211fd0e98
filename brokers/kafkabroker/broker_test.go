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
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

const (
	// patience is how long a test waits for what should happen soon, and tick how often it looks.
	patience = 30 * time.Second
	tick     = 20 * time.Millisecond
)

// kafkaBrokers returns the addresses of a real Kafka, or skips the test.
func kafkaBrokers(t *testing.T) []string {
	t.Helper()
	return strings.Split(testservice.Address(t, testservice.KafkaVariable), ",")
}

// newTopic creates a topic of the test's own through SubscribeInitialize, and waits until it has a
// leader.
func newTopic(t *testing.T, change func(*sarama.TopicDetail)) string {
	t.Helper()
	config := kafkabroker.DefaultSubscriberConfig(kafkaBrokers(t), "setup")
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
	}, patience, tick, "topic %s is not there", topic)
	return topic
}

// eachPublisher runs the test with Postbox's publisher and with Watermill's, for which the settings
// are good too.
func eachPublisher(t *testing.T, test func(t *testing.T, open openPublisher)) {
	t.Helper()
	for name, open := range map[string]openPublisher{
		"kafkabroker": func(config kafka.PublisherConfig) (message.Publisher, error) {
			return kafkabroker.NewPublisher(config, nil)
		},
		"watermill-kafka": func(config kafka.PublisherConfig) (message.Publisher, error) {
			return kafka.NewPublisher(config, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open)
		})
	}
}

type openPublisher func(config kafka.PublisherConfig) (message.Publisher, error)

// publisher returns one that the test closes.
func (open openPublisher) publisher(t *testing.T, config kafka.PublisherConfig) message.Publisher {
	t.Helper()
	publisher, err := open(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	return publisher
}

func newPublisher(t *testing.T) *kafkabroker.Publisher {
	t.Helper()
	publisher, err := kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(kafkaBrokers(t)), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	return publisher
}

// needsRefusals skips the test on the stand-in for Kafka.
func needsRefusals(t *testing.T) {
	t.Helper()
	if strings.Contains(os.Getenv("POSTBOX_SERVICES"), "kafka=fake") {
		t.Skip("Kafka itself is missing, and its stand-in does not refuse what a real broker refuses: scripts/services check says what it needs")
	}
}

func subscribe(t *testing.T, topic string) <-chan *message.Message {
	t.Helper()
	subscriber, err := kafka.NewSubscriber(kafkabroker.DefaultSubscriberConfig(kafkaBrokers(t), "group-"+topic), nil)
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
	msg.Metadata.Set(postbox.MetadataOrderingKey, key)
	return msg
}
