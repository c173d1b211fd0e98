package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// broker is a real one, set up with the helpers that Postbox has for it. Its functions return
// errors, not test failures, since a process that a test kills uses them too.
type broker struct {
	// ensure makes the topic, and what the groups of its consumers need, before anything is
	// published.
	ensure     func(topic string, groups ...string) error
	publisher  func() (message.Publisher, error)
	subscriber func(group string) (message.Subscriber, error)
	classify   func(error) postbox.ErrorClass
	batchSize  int
	// remove clears away after the test.
	remove func(t *testing.T, topic string, groups ...string)
}

func rabbitMQ(uri string) broker {
	return broker{
		ensure: func(topic string, groups ...string) error {
			for _, group := range groups {
				if err := amqpbroker.EnsureTopology(amqpbroker.DefaultSubscriberConfig(uri, group), topic); err != nil {
					return err
				}
			}
			return nil
		},
		publisher: func() (message.Publisher, error) {
			return amqpbroker.NewPublisher(amqpbroker.DefaultPublisherConfig(uri), nil)
		},
		subscriber: func(group string) (message.Subscriber, error) {
			return amqp.NewSubscriber(amqpbroker.DefaultSubscriberConfig(uri, group), watermill.NopLogger{})
		},
		classify: amqpbroker.Classify, batchSize: 100,
		remove: func(t *testing.T, topic string, groups ...string) {
			t.Helper()
			conn, err := amqp091.Dial(uri)
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			channel, err := conn.Channel()
			require.NoError(t, err)
			for _, group := range groups {
				_, err := channel.QueueDelete(topic+"_"+group, false, false, false)
				require.NoError(t, err)
			}
			require.NoError(t, channel.ExchangeDelete(topic, false, false))
		},
	}
}

// kafkaPartitions is less than the default, so that keys share partitions.
const kafkaPartitions = 4

func apacheKafka(addresses string) broker {
	brokers := strings.Split(addresses, ",")
	subscriber := func(group string) (*kafka.Subscriber, error) {
		config := kafkabroker.DefaultSubscriberConfig(brokers, group)
		config.InitializeTopicDetails.NumPartitions = kafkaPartitions
		config.NackResendSleep = 10 * time.Millisecond // handlers fail on purpose here
		return kafka.NewSubscriber(config, nil)
	}
	return broker{
		ensure: func(topic string, _ ...string) error {
			setup, err := subscriber("setup")
			if err != nil {
				return err
			}
			defer func() { _ = setup.Close() }()
			if err := setup.SubscribeInitialize(topic); err != nil {
				return err
			}
			return leadersOf(setup, topic)
		},
		publisher: func() (message.Publisher, error) {
			return kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(brokers), nil)
		},
		subscriber: func(group string) (message.Subscriber, error) { return subscriber(group) },
		classify:   kafkabroker.Classify, batchSize: 100,
		remove: func(t *testing.T, topic string, _ ...string) {
			t.Helper()
			admin, err := sarama.NewClusterAdmin(brokers, kafkabroker.DefaultPublisherConfig(brokers).OverwriteSaramaConfig)
			require.NoError(t, err)
			defer func() { require.NoError(t, admin.Close()) }()
			require.NoError(t, admin.DeleteTopic(topic))
		},
	}
}

// leadersOf waits until a new topic can be used: its partitions get their leaders a moment later.
func leadersOf(subscriber *kafka.Subscriber, topic string) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		offsets, err := subscriber.PartitionOffset(topic)
		if err == nil && len(offsets) == kafkaPartitions {
			return nil
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("topic %s has no leaders: %w", topic, err)
		case <-again.C:
		}
	}
}
