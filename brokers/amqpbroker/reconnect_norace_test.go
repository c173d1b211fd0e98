//go:build !race

// Watermill's AMQP client swaps the state of its connection without a lock when it reconnects,
// which the race detector reports: these tests run without it.

package amqpbroker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

func TestSubscriberReconnects(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	connection := newProxy(t)
	config := amqpbroker.DefaultSubscriberConfig(connection.uri, group)
	messages := subscribe(t, config, topic)
	publisher := newPublisher(t, amqpbroker.DefaultPublisherConfig(amqpURI(t)))
	for range 3 {
		sent := numbered(1, "")[0]
		require.NoError(t, publisher.Publish(topic, sent))
		for receive(t, messages, 1)[0].UUID != sent.UUID {
			// An ack that was lost with the connection brings the message again.
		}
		connection.setDown(true)
		connection.setDown(false)
	}
}
