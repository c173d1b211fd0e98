package role

import (
	"errors"
	"net"

	"github.com/IBM/sarama"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// wire dials Kafka's wire instead of Kafka, which names its own address to clients.
type wire struct{ from, to string }

// Dial implements the interface of golang.org/x/net/proxy.
func (w wire) Dial(network, address string) (net.Conn, error) {
	if address == w.from {
		address = w.to
	}
	return net.Dial(network, address) //nolint:noctx // the interface has no context
}

// through lets a client of Kafka use the wire.
func (c Config) through(config *sarama.Config) {
	if c.KafkaWire != "" {
		config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, wire{c.Kafka, c.KafkaWire}
	}
}

// Partitions of each topic of Kafka: fewer than keys, so that keys share them.
const Partitions = 6

func (c Config) kafkaSubscriber(group string) kafka.SubscriberConfig {
	config := kafkabroker.DefaultSubscriberConfig([]string{c.Kafka}, group)
	config.InitializeTopicDetails.NumPartitions = Partitions
	config.NackResendSleep = kafka.NoSleep // the inbox has paused already
	c.through(config.OverwriteSaramaConfig)
	return config
}

func (p *process) subscriber(flow ledger.Flow) (message.Subscriber, error) {
	if ledger.BrokerOf(flow.Topic) == ledger.Kafka {
		subscriber, err := kafka.NewSubscriber(p.kafkaSubscriber(flow.Consumer), p.logger)
		if err != nil {
			return nil, err
		}
		// It finds out whether the broker is there, which a router that starts would not survive.
		if err := subscriber.SubscribeInitialize(flow.Topic); err != nil {
			return nil, errors.Join(err, subscriber.Close())
		}
		return subscriber, nil
	}
	return amqp.NewSubscriber(amqpbroker.DefaultSubscriberConfig(p.AMQP, flow.Consumer), p.logger)
}

// publishers of both brokers.
type publishers struct{ kafka, rabbit message.Publisher }

func (p *process) publishers() (publishers, error) {
	config := kafkabroker.DefaultPublisherConfig([]string{p.Kafka})
	p.through(config.OverwriteSaramaConfig)
	toKafka, err := kafkabroker.NewPublisher(config, p.logger)
	if err != nil {
		return publishers{}, err
	}
	toRabbit, err := amqpbroker.NewPublisher(amqpbroker.DefaultPublisherConfig(p.AMQP), p.logger)
	return publishers{toKafka, toRabbit}, err
}

// Publish implements message.Publisher.
func (p publishers) Publish(topic string, messages ...*message.Message) error {
	if ledger.BrokerOf(topic) == ledger.Kafka {
		return p.kafka.Publish(topic, messages...)
	}
	return p.rabbit.Publish(topic, messages...)
}

// Close implements message.Publisher.
func (p publishers) Close() error {
	_ = p.rabbit.Close() // it returns nil
	return p.kafka.Close()
}

// Prepare makes the topics, and what the groups of their consumers need, before anything is
// published.
func (c Config) Prepare() error {
	for _, flow := range ledger.Flows {
		if ledger.BrokerOf(flow.Topic) == ledger.RabbitMQ {
			if err := amqpbroker.EnsureTopology(amqpbroker.DefaultSubscriberConfig(c.AMQP, flow.Consumer), flow.Topic); err != nil {
				return err
			}
			continue
		}
		subscriber, err := kafka.NewSubscriber(c.kafkaSubscriber(flow.Consumer), nil)
		if err != nil {
			return err
		}
		if err := subscriber.SubscribeInitialize(flow.Topic); err != nil {
			return err
		}
		if err := subscriber.Close(); err != nil {
			return err
		}
	}
	return nil
}
