package amqpbroker_test

import (
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

// Other clients, such as those of MassTransit and Spring, name a message by the property alone.
func TestMessageIDOfOtherClientsIsTheUUID(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	config := amqpbroker.DefaultQueueConfig(amqpURI(t))
	ensureQueue(t, topic)
	channel := openChannel(t, amqpURI(t))
	foreign := amqp091.Publishing{MessageId: "foreign", Body: []byte("1")}
	require.NoError(t, channel.PublishWithContext(t.Context(), "", topic, true, false, foreign))
	got := receive(t, subscribe(t, config, topic), 1)
	require.Equal(t, "foreign", got[0].UUID)
}

func TestUUIDIsTheMessageIDForOtherClients(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(amqpURI(t)))
	require.NoError(t, publisher.Publish(topic, message.NewMessage("ours", nil)))
	delivery, found, err := openChannel(t, amqpURI(t)).Get(topic, true)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "ours", delivery.MessageId)
}
