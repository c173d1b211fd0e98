package main

import (
	"context"

	"github.com/IBM/sarama"

	"github.com/ThreeDotsLabs/watermill"
	amqpv2 "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	amqpv3 "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// partitions of each topic of Kafka: fewer than keys, so that keys share them.
const partitions = 6

type kafkaServer struct {
	service
	brokers []string
}

func openKafka(context.Context) (server, error) {
	service, address, err := openService("kafka", "TEST_KAFKA_BROKERS")
	return kafkaServer{service, []string{address}}, err
}

// marshaler keeps the messages of a key in one partition.
func (kafkaServer) marshaler() kafka.MarshalerUnmarshaler {
	return kafka.NewWithPartitioningMarshaler(func(_ string, msg *message.Message) (string, error) {
		return msg.Metadata.Get(postbox.MetadataOrderingKey), nil
	})
}

func (s kafkaServer) publisher(logger watermill.LoggerAdapter) (message.Publisher, error) {
	return kafka.NewPublisher(kafka.PublisherConfig{Brokers: s.brokers, Marshaler: s.marshaler()}, logger)
}

func (s kafkaServer) subscriber(logger watermill.LoggerAdapter) (message.Subscriber, error) {
	settings := kafka.DefaultSaramaSubscriberConfig()
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	return kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: s.brokers, Unmarshaler: s.marshaler(), OverwriteSaramaConfig: settings,
		InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1},
	}, logger)
}

// Both versions of watermill-amqp use the same RabbitMQ. Without confirms a message can be lost in
// any outage, so they are on.

type amqpServer struct {
	service
	uri string
}

func openAMQP() (amqpServer, error) {
	service, uri, err := openService("rabbitmq", "TEST_AMQP_URI")
	return amqpServer{service, uri}, err
}

type amqpServerV2 struct{ amqpServer }

func openAMQPv2(context.Context) (server, error) {
	s, err := openAMQP()
	return amqpServerV2{s}, err
}

func (s amqpServerV2) config() amqpv2.Config {
	config := amqpv2.NewDurableQueueConfig(s.uri)
	config.Publish.ConfirmDelivery = true
	return config
}

func (s amqpServerV2) publisher(logger watermill.LoggerAdapter) (message.Publisher, error) {
	return amqpv2.NewPublisher(s.config(), logger)
}

func (s amqpServerV2) subscriber(logger watermill.LoggerAdapter) (message.Subscriber, error) {
	return amqpv2.NewSubscriber(s.config(), logger)
}

type amqpServerV3 struct{ amqpServer }

func openAMQPv3(context.Context) (server, error) {
	s, err := openAMQP()
	return amqpServerV3{s}, err
}

func (s amqpServerV3) config() amqpv3.Config {
	config := amqpv3.NewDurableQueueConfig(s.uri)
	config.Publish.ConfirmDelivery = true
	return config
}

func (s amqpServerV3) publisher(logger watermill.LoggerAdapter) (message.Publisher, error) {
	return amqpv3.NewPublisher(s.config(), logger)
}

func (s amqpServerV3) subscriber(logger watermill.LoggerAdapter) (message.Subscriber, error) {
	return amqpv3.NewSubscriber(s.config(), logger)
}
