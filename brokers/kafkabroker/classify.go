package kafkabroker

import (
	"errors"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"

	postbox "github.com/postbox-go/watermill-postbox"
)

// clientOutages are the errors with which sarama itself reports that Kafka is away, or with which
// sarama or a [Publisher] reports that it was closed.
var clientOutages = []error{
	postbox.ErrClosed,
	sarama.ErrOutOfBrokers, sarama.ErrNotConnected, sarama.ErrBrokerNotFound, sarama.ErrControllerNotAvailable,
	sarama.ErrIncompleteResponse, sarama.ErrClosedClient, sarama.ErrShuttingDown,
	breaker.ErrBreakerOpen, // sarama stops asking for a leader for 10 s after three failures in a row
}

// brokerErrors are the answers of a broker to a producer which show what is at fault. An answer
// about the cluster, the topic's setup, the permissions or the producer's own state would meet any
// other message too, and ends by waiting or through an operator.
var brokerErrors = map[sarama.KError]postbox.ErrorClass{
	sarama.ErrUnknownTopicOrPartition:         postbox.Outage, // not created yet, or the metadata is old
	sarama.ErrLeaderNotAvailable:              postbox.Outage,
	sarama.ErrNotLeaderForPartition:           postbox.Outage,
	sarama.ErrRequestTimedOut:                 postbox.Outage,
	sarama.ErrBrokerNotAvailable:              postbox.Outage,
	sarama.ErrReplicaNotAvailable:             postbox.Outage,
	sarama.ErrNetworkException:                postbox.Outage,
	sarama.ErrOffsetsLoadInProgress:           postbox.Outage,
	sarama.ErrConsumerCoordinatorNotAvailable: postbox.Outage,
	sarama.ErrNotCoordinatorForConsumer:       postbox.Outage,
	sarama.ErrNotEnoughReplicas:               postbox.Outage,
	sarama.ErrNotEnoughReplicasAfterAppend:    postbox.Outage,
	sarama.ErrNotController:                   postbox.Outage,
	sarama.ErrKafkaStorageError:               postbox.Outage,
	sarama.ErrLogDirNotFound:                  postbox.Outage,
	sarama.ErrReassignmentInProgress:          postbox.Outage,
	sarama.ErrFencedLeaderEpoch:               postbox.Outage,
	sarama.ErrUnknownLeaderEpoch:              postbox.Outage,
	sarama.ErrThrottlingQuotaExceeded:         postbox.Outage,

	sarama.ErrTopicAuthorizationFailed:           postbox.Outage,
	sarama.ErrClusterAuthorizationFailed:         postbox.Outage,
	sarama.ErrUnsupportedSASLMechanism:           postbox.Outage,
	sarama.ErrIllegalSASLState:                   postbox.Outage,
	sarama.ErrSASLAuthenticationFailed:           postbox.Outage,
	sarama.ErrSecurityDisabled:                   postbox.Outage,
	sarama.ErrDelegationTokenNotFound:            postbox.Outage,
	sarama.ErrDelegationTokenExpired:             postbox.Outage,
	sarama.ErrDelegationTokenAuthorizationFailed: postbox.Outage,

	sarama.ErrOutOfOrderSequenceNumber: postbox.Outage, // the producer starts a new epoch
	sarama.ErrInvalidProducerEpoch:     postbox.Outage,
	sarama.ErrInvalidProducerIDMapping: postbox.Outage,
	sarama.ErrUnknownProducerID:        postbox.Outage,
	sarama.ErrProducerFenced:           postbox.Outage,

	sarama.ErrInvalidMessage:         postbox.MessageFault, // sarama has retried it, as a broken transfer
	sarama.ErrInvalidMessageSize:     postbox.MessageFault,
	sarama.ErrMessageSizeTooLarge:    postbox.MessageFault,
	sarama.ErrMessageSetSizeTooLarge: postbox.MessageFault,
	sarama.ErrInvalidTopic:           postbox.MessageFault, // no topic can have that name
	sarama.ErrInvalidTimestamp:       postbox.MessageFault,
	sarama.ErrInvalidRecord:          postbox.MessageFault, // for example no key on a compacted topic
}

// Classify returns the [postbox.ErrorClass] of errors of a publisher made with
// [DefaultPublisherConfig]. An error of the cluster, the connection, the topic or the permissions
// is an outage: the message waits. A message that is too large, cannot be encoded, goes to a topic
// with an impossible name, or is refused by the broker's validation is at fault. All other errors
// are Unclassified, and so is nil.
//
// Classify includes [postbox.ClassifyNetwork], unwraps errors and sarama.ProducerErrors, and never
// reads an error's text. It takes a sarama.ConfigurationError for a fault of the message, because
// the one that Publish returns says that the message is larger than Producer.MaxMessageBytes. One
// that NewPublisher, ours or theirs, returns is about the configuration and must not be passed to
// Classify.
func Classify(err error) postbox.ErrorClass {
	if class := postbox.ClassifyNetwork(err); class != postbox.Unclassified {
		return class
	}
	var many sarama.ProducerErrors
	if errors.As(err, &many) {
		return classifyAll(many)
	}
	for _, outage := range clientOutages {
		if errors.Is(err, outage) {
			return postbox.Outage
		}
	}
	var answer sarama.KError
	if errors.As(err, &answer) {
		return brokerErrors[answer]
	}
	var tooLarge sarama.ConfigurationError
	var notEncodable sarama.PacketEncodingError
	if errors.As(err, &tooLarge) || errors.As(err, &notEncodable) {
		return postbox.MessageFault
	}
	return postbox.Unclassified
}

// classifyAll returns Outage if any of the errors is one, and else the class that all of them
// share.
func classifyAll(many sarama.ProducerErrors) postbox.ErrorClass {
	seen := make(map[postbox.ErrorClass]bool)
	for _, one := range many {
		seen[Classify(one)] = true
	}
	switch {
	case seen[postbox.Outage]:
		return postbox.Outage
	case seen[postbox.MessageFault] && !seen[postbox.Unclassified]:
		return postbox.MessageFault
	default:
		return postbox.Unclassified
	}
}
