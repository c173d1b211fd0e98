package amqpbroker

import (
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
)

// orderedPrefetch is the only number of unacknowledged messages that keeps their order: a nacked
// message goes back to the head of the queue, but behind the messages that were fetched already.
const orderedPrefetch = 1

// DefaultPublisherConfig returns the configuration of a publisher for an outbox, for publish and
// subscribe: each topic is a durable fanout exchange, and each group of consumers has a durable
// queue bound to it. Give it to [NewPublisher]; watermill-amqp's own publisher takes it too. The
// package comment explains each setting.
//
// The result may be changed; every call returns a new one.
func DefaultPublisherConfig(uri string) amqp.Config {
	return safe(amqp.NewDurablePubSubConfig(uri, nil))
}

// DefaultSubscriberConfig returns the configuration of an amqp.Subscriber in front of an inbox, for
// publish and subscribe. The queue of a topic is named topic_group. All processes with the same
// group share it, and one of them at a time gets its messages. It is also what [EnsureTopology]
// needs. The package comment explains each setting.
//
// The result may be changed; every call returns a new one.
func DefaultSubscriberConfig(uri, group string) amqp.Config {
	config := safe(amqp.NewDurablePubSubConfig(uri, amqp.GenerateQueueNameTopicNameWithSuffix(group)))
	config.Queue.Arguments = amqp091.Table{"x-single-active-consumer": true}
	return config
}

// DefaultQueueConfig returns the configuration of both publisher and subscriber of a work queue:
// each topic is a durable queue of that name, reached through the default exchange, and each
// message goes to one of its consumers. Several consumers keep no order, unless Queue.Arguments has
// that of [DefaultSubscriberConfig]. The package comment explains each setting.
//
// The result may be changed; every call returns a new one.
func DefaultQueueConfig(uri string) amqp.Config {
	return safe(amqp.NewDurableQueueConfig(uri))
}

// safe sets what an outbox and an inbox need on top of durable queues and exchanges.
func safe(config amqp.Config) amqp.Config {
	config.Marshaler = Marshaler{}

	config.Publish.ConfirmDelivery = true
	config.Publish.Mandatory = true
	config.Publish.Transactional = false
	config.Publish.Immediate = false
	config.Publish.ChannelPoolSize = 0

	config.Consume.NoRequeueOnNack = false
	config.Consume.Qos = amqp.QosConfig{PrefetchCount: orderedPrefetch}
	return config
}
