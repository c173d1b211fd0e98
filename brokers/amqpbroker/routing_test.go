package amqpbroker_test

import (
	"errors"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

// requireUnroutable checks that the outbox would keep the message and try again.
func requireUnroutable(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, amqpbroker.ErrUnroutable)
	require.Equal(t, postbox.Outage, amqpbroker.Classify(err))
}

// F17: RabbitMQ confirms a message that it drops for want of a queue (finding L14).
func TestF17ExchangeWithoutQueueIsUnroutable(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	publisher := newPublisher(t, amqpbroker.DefaultPublisherConfig(amqpURI(t)))
	requireUnroutable(t, publisher.Publish(topic, numbered(3, "")...))
	requireUnroutable(t, publisher.Publish(topic, numbered(1, "")...))

	subscriberConfig := amqpbroker.DefaultSubscriberConfig(amqpURI(t), group)
	require.NoError(t, amqpbroker.EnsureTopology(subscriberConfig, topic))
	sent := numbered(2, "")
	require.NoError(t, publisher.Publish(topic, sent...))
	for i, got := range receive(t, subscribe(t, subscriberConfig, topic), len(sent)) {
		require.Equal(t, sent[i].UUID, got.UUID, "nothing of the failed calls may be there")
	}
}

// F17, through the default exchange.
func TestF17UndeclaredQueueIsUnroutable(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(amqpURI(t)))
	requireUnroutable(t, publisher.Publish(topic, numbered(1, "")...))

	ensureQueue(t, topic)
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))
	require.Equal(t, 1, depth(t, topic))
}

// F17: what was checked once can go away later.
func TestF17QueueDeletedMeanwhileIsUnroutable(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(amqpURI(t)))
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))

	_, err := openChannel(t, amqpURI(t)).QueueDelete(topic, false, false, false)
	require.NoError(t, err)
	requireUnroutable(t, publisher.Publish(topic, numbered(1, "")...))
}

func TestDeletedExchangeIsUnroutableAndDeclaredAgain(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	config := amqpbroker.DefaultSubscriberConfig(amqpURI(t), group)
	require.NoError(t, amqpbroker.EnsureTopology(config, topic))
	publisher := newPublisher(t, amqpbroker.DefaultPublisherConfig(amqpURI(t)))
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))

	require.NoError(t, openChannel(t, amqpURI(t)).ExchangeDelete(topic, false, false))
	requireUnroutable(t, publisher.Publish(topic, numbered(1, "")...))
	requireUnroutable(t, publisher.Publish(topic, numbered(1, "")...)) // declared, but nothing is bound

	require.NoError(t, amqpbroker.EnsureTopology(config, topic))
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))
}

func TestExchangeOfAnotherKindIsAnOutage(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	require.NoError(t, openChannel(t, amqpURI(t)).ExchangeDeclare(topic, amqp091.ExchangeTopic, true, false, false, false, nil))
	publisher := newPublisher(t, amqpbroker.DefaultPublisherConfig(amqpURI(t)))
	requireUnroutable(t, publisher.Publish(topic, numbered(1, "")...))
}

func TestWithoutMandatoryAMessageNeedsNoQueue(t *testing.T) {
	t.Parallel()
	config := amqpbroker.DefaultPublisherConfig(amqpURI(t))
	config.Publish.Mandatory = false
	require.NoError(t, newPublisher(t, config).Publish(newTopic(t), numbered(1, "")...))
}

func TestFullQueueIsAnOutage(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	config := amqpbroker.DefaultQueueConfig(amqpURI(t))
	config.Queue.Arguments = amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"}
	require.NoError(t, amqpbroker.EnsureTopology(config, topic))
	publisher := newPublisher(t, config)
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))
	require.Eventually(t, func() bool {
		err := publisher.Publish(topic, numbered(1, "")...)
		if err != nil {
			require.ErrorIs(t, err, amqpbroker.ErrNotConfirmed)
			require.Equal(t, postbox.Outage, amqpbroker.Classify(err))
		}
		return err != nil
	}, patience, 10*time.Millisecond)
}

// A channel on which RabbitMQ has rejected a message can go on rejecting, behind a quorum queue
// that has lost its leader, when a new one works.
func TestChannelIsReplacedAfterRabbitMQRejectedAMessage(t *testing.T) {
	t.Parallel()
	full, good := newTopic(t), newTopic(t)
	config := amqpbroker.DefaultQueueConfig(amqpURI(t))
	ensureQueue(t, good)
	config.Queue.Arguments = amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"}
	require.NoError(t, amqpbroker.EnsureTopology(config, full))
	publisher := newPublisher(t, config)
	require.Eventually(t, func() bool {
		return errors.Is(publisher.Publish(full, numbered(1, "")...), amqpbroker.ErrNotConfirmed)
	}, patience, 10*time.Millisecond)
	require.Zero(t, publisher.IdleChannels())
	require.NoError(t, publisher.Publish(good, numbered(1, "")...))
	require.Equal(t, 1, publisher.IdleChannels())
}

func TestEnsureTopologyNeedsAGroup(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, amqpbroker.EnsureTopology(amqpbroker.DefaultPublisherConfig(nowhere), "topic"), "Queue.GenerateName")
}

func TestEnsureTopologyReportsAMismatch(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	ensureQueue(t, topic) // once more is no error
	config := amqpbroker.DefaultQueueConfig(amqpURI(t))
	config.Queue.Durable = false
	err := amqpbroker.EnsureTopology(config, topic)
	var exception *amqp091.Error
	require.ErrorAs(t, err, &exception)
	require.Equal(t, amqp091.PreconditionFailed, exception.Code)
	require.ErrorContains(t, err, topic)
}

func TestEnsureTopologyWithoutBroker(t *testing.T) {
	t.Parallel()
	require.Equal(t, postbox.Outage, amqpbroker.Classify(amqpbroker.EnsureTopology(amqpbroker.DefaultQueueConfig(nowhere), "topic")))
}
