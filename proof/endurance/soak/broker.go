package soak

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// The brokers that there are.
const (
	GoChannel = "gochannel"
	Kafka     = "kafka"
	// KafkaVariable is where scripts/services says where Kafka is.
	KafkaVariable = "TEST_KAFKA_BROKERS"
)

// partitions of the topic: as many messages of it are handled at a time by each consumer.
const partitions = 4

// broker carries messages from the forwarder to the consumers.
type broker struct {
	publisher  message.Publisher
	subscriber func(consumer string) (message.Subscriber, error)
	classify   func(error) postbox.ErrorClass
	batchSize  int
	close      func() error
}

func openBroker(name, topic string) (broker, error) {
	switch name {
	case GoChannel:
		return channel(), nil
	case Kafka:
		addresses := os.Getenv(KafkaVariable)
		if addresses == "" {
			return broker{}, fmt.Errorf("%s is not set: run through scripts/services, as make soak does", KafkaVariable)
		}
		return apacheKafka(strings.Split(addresses, ","), topic)
	default:
		return broker{}, fmt.Errorf("broker %q is neither %s nor %s", name, GoChannel, Kafka)
	}
}

// channel is Watermill's GoChannel. A message leaves the outbox when its consumers have acked it.
func channel() broker {
	bus := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	return broker{
		publisher:  bus,
		subscriber: func(string) (message.Subscriber, error) { return member{bus}, nil },
		classify:   postbox.ClassifyNetwork, batchSize: 1, close: bus.Close,
	}
}

// member leaves the bus open when the router closes it: others still use it.
type member struct{ bus message.Subscriber }

func (m member) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return m.bus.Subscribe(ctx, topic)
}

func (m member) Close() error { return nil }

func apacheKafka(addresses []string, topic string) (broker, error) {
	publisher, err := kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(addresses), nil)
	if err != nil {
		return broker{}, err
	}
	return broker{
		publisher: publisher,
		subscriber: func(consumer string) (message.Subscriber, error) {
			config := kafkabroker.DefaultSubscriberConfig(addresses, consumer)
			config.InitializeTopicDetails.NumPartitions = partitions
			subscriber, err := kafka.NewSubscriber(config, nil)
			if err != nil {
				return nil, err
			}
			return subscriber, subscriber.SubscribeInitialize(topic)
		},
		classify: kafkabroker.Classify, batchSize: 100, close: publisher.Close,
	}, nil
}
