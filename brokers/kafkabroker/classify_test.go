package kafkabroker_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for class, all := range map[postbox.ErrorClass][]error{
		postbox.Outage: {
			sarama.ErrOutOfBrokers,
			sarama.Wrap(sarama.ErrOutOfBrokers, sarama.ErrUnknown),
			sarama.ErrNotConnected, sarama.ErrClosedClient, sarama.ErrShuttingDown, sarama.ErrBrokerNotFound,
			sarama.ErrControllerNotAvailable, sarama.ErrIncompleteResponse, breaker.ErrBreakerOpen,
			sarama.ErrUnknownTopicOrPartition, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition,
			sarama.ErrRequestTimedOut, sarama.ErrBrokerNotAvailable, sarama.ErrReplicaNotAvailable,
			sarama.ErrNetworkException, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend,
			sarama.ErrKafkaStorageError, sarama.ErrThrottlingQuotaExceeded, sarama.ErrFencedLeaderEpoch,
			sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed, sarama.ErrSASLAuthenticationFailed,
			sarama.ErrOutOfOrderSequenceNumber, sarama.ErrInvalidProducerEpoch, sarama.ErrUnknownProducerID,
			&net.OpError{Op: "dial", Err: errors.New("unreachable")},
			sarama.ProducerErrors{produced(sarama.ErrMessageSizeTooLarge), produced(sarama.ErrNotEnoughReplicas)},
		},
		postbox.MessageFault: {
			sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidMessage,
			sarama.ErrInvalidMessageSize, sarama.ErrInvalidRecord, sarama.ErrInvalidTopic, sarama.ErrInvalidTimestamp,
			sarama.ConfigurationError("too large"),
			sarama.PacketEncodingError{Info: "too long"},
			postbox.Permanent(sarama.ErrUnknown),
			sarama.ProducerErrors{produced(sarama.ErrMessageSizeTooLarge), produced(sarama.ErrInvalidRecord)},
		},
		postbox.Unclassified: {
			nil, errors.New("something else"), sarama.ErrUnknown, sarama.ErrPolicyViolation, sarama.ErrInsufficientData,
			sarama.ProducerErrors{},
			sarama.ProducerErrors{produced(sarama.ErrUnknown), produced(sarama.ErrInvalidRecord)},
		},
	} {
		for _, err := range all {
			require.Equal(t, class, kafkabroker.Classify(err), "%T %v", err, err)
			if err != nil {
				require.Equal(t, class, kafkabroker.Classify(fmt.Errorf("publish: %w", err)), "wrapped %T %v", err, err)
			}
		}
	}
}

func produced(err error) *sarama.ProducerError {
	return &sarama.ProducerError{Msg: &sarama.ProducerMessage{Topic: "topic"}, Err: err}
}
