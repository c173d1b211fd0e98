// Package amqpbroker gives Watermill's RabbitMQ publisher and subscriber the settings that an
// outbox and an inbox need. It also has a publisher that notices errors which the stock one does
// not. For watermill-amqp v2; brokers/amqpbrokerv3 is for v3.
//
// # The problem
//
// With watermill-amqp's defaults Publish returns before RabbitMQ has the message. With confirms on,
// RabbitMQ still confirms a message that it drops because no queue exists for it. After a nack on a
// quorum queue, the message carries a header that the stock marshaler cannot read. It is then
// requeued and fails again, thousands of times a second and for ever.
//
// # Topology first
//
// RabbitMQ drops a message that reaches no queue. Declare the destinations before the forwarder
// starts:
//
//	config := amqpbroker.DefaultSubscriberConfig(uri, "billing")
//	err := amqpbroker.EnsureTopology(config, "orders", "payments")
//
// # Publisher
//
//	publisher, err := amqpbroker.NewPublisher(amqpbroker.DefaultPublisherConfig(uri), logger)
//
// [DefaultPublisherConfig] is for publish and subscribe, [DefaultQueueConfig] for work queues.
//
// Its settings, and why:
//
//   - Publish.ConfirmDelivery = true: Publish returns when RabbitMQ has the message, on disk where
//     the queue is durable
//   - Publish.Mandatory = true: RabbitMQ returns a message that reached no queue, and [Publisher]
//     reports it (the stock publisher does not look)
//   - Publish.Transactional = false: watermill-amqp returns no error when the transaction fails;
//     confirms are faster too
//   - Publish.ChannelPoolSize = 0: watermill-amqp's pool hangs for ever after a reconnect;
//     [Publisher] keeps channels itself
//   - Publish.Immediate = false: RabbitMQ does not support it
//   - Marshaler = [Marshaler]: persistent messages, UUID and metadata in the headers
//   - Exchange.Durable = true: the exchange survives a restart of RabbitMQ
//
// [Publisher] returns an error for a message without a queue, which [Classify] takes for an
// outage. The message stays in the outbox and is tried again until the queue is declared. No
// attempt is counted, and the message does not become a dead letter. If an event may have no
// consumers, set Publish.Mandatory to false.
//
// The stock publisher works with these configurations too. But its "not connected" and "not
// confirmed" are text without a type, so [Classify] does not know them, and unroutable messages are
// lost.
// It opens a channel for every call and waits for each message: 399 messages a second one by one.
// [Publisher] on one machine with RabbitMQ 3.10, 2 cores and a durable queue reaches 1,900 a second
// one by one, 7,600 in batches of 100, and 5,000 from 64 concurrent callers. So give it batches, or
// call it concurrently.
//
// # Subscriber
//
//	subscriber, err := amqp.NewSubscriber(config, logger) // that of the topology
//
// Its settings, and why:
//
//   - Queue.GenerateName = topic_group: every group of consumers has a queue of its own and gets
//     every message
//   - Queue.Durable = true: queue and messages survive a restart of RabbitMQ
//   - Queue.Arguments = {"x-single-active-consumer": true}: of all consumers of a queue one gets
//     the messages, in order, and another takes over when it is gone. RabbitMQ gives them in turn
//     otherwise, so that two processes handle two messages of a key at a time. Set nil if there are
//     no ordering keys. A queue that was declared otherwise must run empty and be deleted first,
//     after its consumers have stopped, which would declare it again. [DefaultQueueConfig], for
//     work that has no order, does not set it
//   - Consume.Qos.PrefetchCount = 1: keeps the order after a nack; without ordering keys 10 to 50
//     saves a round trip a message
//   - Consume.NoRequeueOnNack = false: a nacked message comes again; true drops it, unless the
//     queue has a dead-letter exchange
//   - Marshaler = [Marshaler]: reads any header: a message that cannot be read would come back at
//     once, for ever
//
// Watermill handles one message of a subscription at a time, whatever the prefetch. For more, defer
// the work with an inbox, or, without order, start several subscriptions.
//
// A nacked message comes back at once. An inbox and middleware.Defer pause before they nack; for
// other handlers [DelayNack] slows that down.
//
// Queues are classic unless Queue.Arguments has "x-queue-type": "quorum", which replicates them.
// All clients must declare the same. To reach a cluster while any one node is down, let
// Connection.AmqpConfig.Dial try its nodes, or put a load balancer before them. Give a quorum queue
// "x-delivery-limit": 1000000. Without a limit RabbitMQ puts a message that was nacked behind later
// ones; from RabbitMQ 4 on the default is 20 deliveries, after which it drops the message.
//
// A message from a producer other than Watermill has the property message-id as its UUID. If it has
// none, the inbox's policy for messages without an id decides about it. RabbitMQ has no coordinates
// that could replace the id.
package amqpbroker
