package kafkabroker

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
)

// clientID is how brokers name the client in their logs, metrics and quotas.
const clientID = "postbox"

// protocolVersion is the protocol of the oldest supported brokers. Newer brokers understand it:
// Kafka 4 dropped only older ones.
var protocolVersion = sarama.V2_1_0_0

const (
	// Together ten seconds: a broker that dies is noticed after nine (broker.session.timeout.ms),
	// and a new leader elected. Without any broker the producer gives up much sooner.
	producerRetries      = 20
	producerRetryBackoff = 500 * time.Millisecond

	replicaTimeout = 10 * time.Second
	dialTimeout    = 10 * time.Second
)

// DefaultPublisherConfig returns the configuration of a publisher for an outbox, for [NewPublisher]
// as for kafka.NewPublisher. A message counts as published once all in-sync replicas have it: at
// least one, unless the topic's min.insync.replicas asks for more.
// Retries may duplicate messages but do not reorder them, and messages of one ordering key share a
// partition. The package comment explains each setting.
//
// The result may be changed; every call returns a new one.
func DefaultPublisherConfig(brokers []string) kafka.PublisherConfig {
	config := sarama.NewConfig()
	config.ClientID = clientID
	config.Version = protocolVersion

	config.Net.DialTimeout = dialTimeout
	config.Net.MaxOpenRequests = 1

	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Timeout = replicaTimeout
	config.Producer.Idempotent = false // with it sarama loses messages: see the package comment
	config.Producer.Retry.Max = producerRetries
	config.Producer.Retry.Backoff = producerRetryBackoff
	config.Producer.Return.Successes = true
	config.Producer.Return.Errors = true
	config.Producer.Partitioner = sarama.NewHashPartitioner

	return kafka.PublisherConfig{
		Brokers:               brokers,
		Marshaler:             Marshaler(),
		OverwriteSaramaConfig: config,
	}
}
