package clusters

import (
	"context"
	"errors"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// nodes are the servers of a broker.
type nodes interface {
	// Leader of a part of the topic, and whether all copies of it are in sync.
	Leader(ctx context.Context, topic string, part int) (leader int, whole bool, err error)
	Kill(node int) error
	Start(ctx context.Context, node int) error
	Close() error
}

// broker is a cluster with its clients.
type broker struct {
	nodes      nodes
	publisher  message.Publisher
	subscriber message.Subscriber
	classify   func(error) postbox.ErrorClass
}

// partitions of the topic: fewer than keys, so that keys share them, and each node leads some.
const partitions = 6

type kafkaNodes struct{ *testcluster.Kafka }

// Leader implements nodes: the parts are partitions.
func (k kafkaNodes) Leader(ctx context.Context, topic string, part int) (int, bool, error) {
	return k.Kafka.Leader(ctx, topic, part%partitions)
}

func openKafka(ctx context.Context, topic string) (_ *broker, err error) {
	cluster, err := testcluster.StartKafka(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cluster.Close())
		}
	}()
	config := kafkabroker.DefaultSubscriberConfig(cluster.Addresses(), consumer)
	config.InitializeTopicDetails.NumPartitions = partitions // of three copies, two of them in sync: the cluster's default
	subscriber, err := kafka.NewSubscriber(config, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(topic); err != nil {
		return nil, err
	}
	publisher, err := kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(cluster.Addresses()), nil)
	if err != nil {
		return nil, err
	}
	return &broker{kafkaNodes{cluster}, publisher, subscriber, kafkabroker.Classify}, nil
}

type rabbitNodes struct{ *testcluster.RabbitMQ }

// Leader implements nodes: the queue has one part.
func (r rabbitNodes) Leader(ctx context.Context, topic string, _ int) (int, bool, error) {
	return r.RabbitMQ.Leader(ctx, topic+"_"+consumer)
}

func openRabbitMQ(ctx context.Context, topic string) (_ *broker, err error) {
	cluster, err := testcluster.StartRabbitMQ(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cluster.Close())
		}
	}()
	through := func(config amqp.Config) amqp.Config {
		config.Connection.AmqpConfig = &amqp091.Config{Dial: cluster.Dial}
		config.Queue.Arguments = amqp091.Table{"x-queue-type": "quorum", "x-single-active-consumer": true, "x-delivery-limit": 1000000}
		return config
	}
	subscribed := through(amqpbroker.DefaultSubscriberConfig(cluster.URI(), consumer))
	if err := amqpbroker.EnsureTopology(subscribed, topic); err != nil {
		return nil, err
	}
	subscriber, err := amqp.NewSubscriber(subscribed, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	publisher, err := amqpbroker.NewPublisher(through(amqpbroker.DefaultPublisherConfig(cluster.URI())), nil)
	if err != nil {
		return nil, err
	}
	return &broker{rabbitNodes{cluster}, publisher, subscriber, amqpbroker.Classify}, nil
}
