package pipes

import (
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

func (p *Pipes) openBroker(s Settings) error {
	p.Classify, p.BatchSize = postbox.ClassifyNetwork, 1 // Kafka and RabbitMQ take many messages at the price of one
	var publisher message.Publisher
	var err error
	switch s.Broker {
	case "gochannel":
		bus := newBus(p.Logger)
		publisher, p.broker = bus, bus
	case "rabbitmq":
		uri := fromEnvironment(s.BrokerURL, "amqp://guest:guest@localhost:5672/", "AMQP_URI", "TEST_AMQP_URI")
		publisher, err = amqpbroker.NewPublisher(amqpbroker.DefaultPublisherConfig(uri), p.Logger)
		p.broker, p.Classify, p.BatchSize = rabbitmq{uri, p.Logger}, amqpbroker.Classify, 100
	case "kafka":
		brokers := strings.Split(fromEnvironment(s.BrokerURL, "localhost:9092", "KAFKA_BROKERS", "TEST_KAFKA_BROKERS"), ",")
		publisher, err = kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(brokers), p.Logger)
		p.broker, p.Classify, p.BatchSize = apacheKafka{brokers, p.Logger}, kafkabroker.Classify, 100
	default:
		err = fmt.Errorf("broker %q is none of gochannel, rabbitmq and kafka", s.Broker)
	}
	if err != nil {
		return err
	}
	p.Publisher = prefixedPublisher{publisher, p.prefix}
	p.onClose(publisher.Close)
	return nil
}

type rabbitmq struct {
	uri    string
	logger watermill.LoggerAdapter
}

func (r rabbitmq) subscriber(group string, topics []string) (message.Subscriber, error) {
	config := amqpbroker.DefaultSubscriberConfig(r.uri, group)
	// A message must reach a queue, so the queues come first.
	if err := amqpbroker.EnsureTopology(config, topics...); err != nil {
		return nil, err
	}
	return amqp.NewSubscriber(config, r.logger)
}

type apacheKafka struct {
	brokers []string
	logger  watermill.LoggerAdapter
}

// partitions of a topic: as many messages of it are handled at a time, all members of a group
// together.
const partitions = 4

func (k apacheKafka) subscriber(group string, topics []string) (message.Subscriber, error) {
	config := kafkabroker.DefaultSubscriberConfig(k.brokers, group)
	config.InitializeTopicDetails.NumPartitions = partitions
	subscriber, err := kafka.NewSubscriber(config, k.logger)
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		// Kafka makes a missing topic with its own defaults, usually one partition.
		if err := subscriber.SubscribeInitialize(topic); err != nil {
			_ = subscriber.Close() // it has no connection yet
			return nil, err
		}
	}
	return subscriber, nil
}
