// Package kafkabroker gives Watermill's Kafka publisher and subscriber the settings that an outbox
// and an inbox need, and replaces the publisher with one that sends batches.
//
// # The problem
//
// Watermill's defaults for Kafka suit events that may be lost. An outbox publishes messages that
// must not be lost. With the defaults a message counts as sent when one broker has it, a retry may
// reorder or duplicate messages, and messages without an ordering key all go to one partition. A
// new consumer group starts at the end of the topic, so messages that were published before its
// first start never reach the inbox.
//
// # Publisher
//
//	config := kafkabroker.DefaultPublisherConfig(brokers)
//	publisher, err := kafkabroker.NewPublisher(config, logger)
//
// Its settings, and why:
//
//   - Producer.RequiredAcks = WaitForAll: a message counts as sent when every replica in sync has
//     it
//   - Producer.Idempotent = false: with it sarama 1.43 loses messages (see below)
//   - Net.MaxOpenRequests = 1: a retry inside the producer does not swap messages; batches still
//     fill while a request is under way
//   - Producer.Return.Successes = true: Publish returns when Kafka answered, not when the message
//     is queued
//   - Producer.Return.Errors = true: Publish returns the error of its own message
//   - Producer.Retry.Max, .Backoff = 20, 500 ms: rides out the election of a new leader, without
//     the duplicates that a retry by the forwarder makes
//   - Producer.Timeout = 10 s: how long the leader waits for its replicas before it answers with an
//     error
//   - Net.DialTimeout = 10 s: a broker that vanished is an outage after 10 s, not 30 s
//   - Producer.MaxMessageBytes = 1 MiB: Kafka's own default; never set it above the topic's
//     max.message.bytes (see below)
//   - Producer.Partitioner = hash: one key, one partition: Kafka keeps the order of a partition
//     only
//   - Marshaler = [Marshaler]: the record's key is the message's ordering key, and never empty
//   - Version = 2.1: speaks to every broker from 2.1 on
//
// Leave idempotence off. When a message fails for good, because it is too large or after an outage,
// sarama's idempotent producer begins a new epoch. It then sends messages that it holds for another
// try with their old sequence numbers in that epoch. Kafka takes some of them for duplicates, and
// sarama reports success for messages that do not exist. Without idempotence, a retry after a lost
// answer writes a message twice, which outboxes do anyway and inboxes absorb.
//
// Kafka refuses a batch as a whole, so a batch of small messages above the topic's
// max.message.bytes fails as if each message were too large. Sarama fills batches up to
// Producer.MaxMessageBytes: keep that at or below the limit of every topic.
//
// [Publisher] sends the messages of a call together; only messages of one key follow each other.
// Give it batches: forwarder.Config{BatchSize: 100}. kafka.NewPublisher takes the same
// configuration and is as safe. It sends one message and waits for it before it sends the next, so
// its batches form from concurrent calls only; leave the forwarder's BatchSize at 1 with it. A
// forwarder with it reached about half the throughput, for about twice the processor time.
//
// Both publishers connect at once and fail while no broker answers. Close of Watermill's publisher
// does not wait for calls of Publish: close the forwarder first.
//
// # Subscriber
//
//	config := kafkabroker.DefaultSubscriberConfig(brokers, "billing")
//	subscriber, err := kafka.NewSubscriber(config, logger)
//
// Its settings, and why:
//
//   - ConsumerGroup = yours: Kafka keeps what the group has acked; without a group every start
//     reads everything again
//   - Consumer.Offsets.Initial = oldest: a message published before the group's first start is
//     delivered too
//   - Consumer.Offsets.AutoCommit = every 1 s: after a crash up to a second of acked messages comes
//     again; the inbox takes them for duplicates
//   - Consumer.IsolationLevel = uncommitted: nothing here publishes in Kafka transactions; set
//     ReadCommitted if another producer does
//   - Consumer.Group.Rebalance = sticky: few partitions move when a member comes or goes, so few
//     messages are worked on twice; range for members not changed yet
//   - Consumer.Return.Errors = true: Watermill logs them
//   - NackResendSleep = 1 s: a nacked message comes again after it, and a database gets a second to
//     come back
//   - ReconnectRetrySleep = 1 s: the pause between two attempts to connect; Close waits for it to
//     end
//   - InitializeTopicDetails = 12, default: SubscribeInitialize creates topics with 12 partitions
//     and the cluster's replication factor
//   - Unmarshaler = [Marshaler]: the record's key becomes the ordering key where the producer set
//     none
//
// A record from a producer that is not Watermill has no message id: its UUID is empty.
// [Coordinates] names it by topic, partition and offset instead, for the inbox's policy for
// messages without an id.
//
// A message that goes to a queue of the inbox leaves Kafka behind. [Capture] keeps what was known
// of it there, as metadata: give it to middleware.DeferConfig.
//
// # Compressed batches
//
// Sarama unpacks a batch before anybody can look at its size, and has no limit for that: 57 KB that
// somebody wrote to the topic can become 1 GB in the consumer. Kafka limits a batch as it is sent,
// so a limit has to be on the broker: let only producers that you trust write to the topics of an
// inbox. With compression.type=uncompressed on a topic the broker unpacks what it gets, and a batch
// of at most max.message.bytes reaches the consumer, for more disk and network.
//
// # Topology first
//
// Brokers create a missing topic with their own defaults, usually a single partition, unless
// auto.create.topics.enable is off; then publishing to it is an outage until the topic is there.
// Create topics before the forwarder starts: with SubscribeInitialize, or with the tools of the
// cluster.
//
// # Errors
//
// [Classify] tells the forwarder whether an error is about Kafka, so that nothing but waiting
// helps, or about the message.
//
// # What it does not do
//
// It hides nothing: [DefaultPublisherConfig] and [DefaultSubscriberConfig] return the plain
// configurations of watermill-kafka, to be changed before they are used. TLS, SASL, compression and
// client ids are in OverwriteSaramaConfig.
package kafkabroker
