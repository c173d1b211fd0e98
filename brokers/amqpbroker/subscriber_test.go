package amqpbroker_test

import (
	"errors"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

// Finding L16: with Watermill's marshaler a message on a quorum queue is never seen again after one
// nack.
func TestNackedMessageOfAQuorumQueueComesAgain(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	config := amqpbroker.DefaultQueueConfig(amqpURI(t))
	config.Queue.Arguments = amqp091.Table{"x-queue-type": "quorum"}
	require.NoError(t, amqpbroker.EnsureTopology(config, topic))
	require.NoError(t, newPublisher(t, config).Publish(topic, numbered(1, "k")...))

	messages := subscribe(t, config, topic)
	for _, count := range []string{"", "1", "2"} {
		select {
		case msg := <-messages:
			require.Equal(t, count, msg.Metadata.Get("x-delivery-count"))
			msg.Nack()
		case <-time.After(patience):
			require.Fail(t, "no delivery")
		}
	}
	require.Equal(t, "3", receive(t, messages, 1)[0].Metadata.Get("x-delivery-count"))
}

// Without a limit of deliveries RabbitMQ puts a message that was nacked behind later ones.
func TestNackedMessageOfAQuorumQueueWithALimitComesBeforeLaterOnes(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	config := amqpbroker.DefaultQueueConfig(amqpURI(t))
	config.Consume.Qos.PrefetchCount = 1
	config.Queue.Arguments = amqp091.Table{"x-queue-type": "quorum", "x-single-active-consumer": true, "x-delivery-limit": 1000000}
	require.NoError(t, amqpbroker.EnsureTopology(config, topic))
	sent := numbered(3, "k")
	require.NoError(t, newPublisher(t, config).Publish(topic, sent...))

	messages := subscribe(t, config, topic)
	for range 30 { // more than the default limit of RabbitMQ 4
		msg := <-messages
		require.Equal(t, sent[0].UUID, msg.UUID)
		msg.Nack()
	}
	for i, msg := range receive(t, messages, 3) {
		require.Equal(t, sent[i].UUID, msg.UUID)
	}
}

// RabbitMQ ends the subscription of a queue that is deleted, and the subscriber makes both again.
// Watermill's marshaler hands out the end as a message without an id and a payload.
func TestEndedSubscriptionHandsOutNoEmptyMessage(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	config := amqpbroker.DefaultQueueConfig(amqpURI(t))
	publisher := newPublisher(t, config)
	messages := subscribe(t, config, topic)
	for range 5 {
		sent := numbered(1, "")[0]
		require.Eventually(t, func() bool { return publisher.Publish(topic, sent) == nil }, patience, 10*time.Millisecond)
		require.Equal(t, sent.UUID, receive(t, messages, 1)[0].UUID)
		_, err := openChannel(t, amqpURI(t)).QueueDelete(topic, false, false, false)
		require.NoError(t, err)
	}
}

// A dead letter comes with a header that is a list of tables.
func TestDeadLetterIsReadable(t *testing.T) {
	t.Parallel()
	from, to := newTopic(t), newTopic(t)
	ensureQueue(t, to)
	config := amqpbroker.DefaultQueueConfig(amqpURI(t))
	config.Consume.NoRequeueOnNack = true
	config.Queue.Arguments = amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
	require.NoError(t, amqpbroker.EnsureTopology(config, from))
	sent := numbered(1, "k")[0]
	require.NoError(t, newPublisher(t, config).Publish(from, sent))

	(<-subscribe(t, config, from)).Nack()
	got := receive(t, subscribe(t, amqpbroker.DefaultQueueConfig(amqpURI(t)), to), 1)[0]
	require.Equal(t, sent.UUID, got.UUID)
	require.Contains(t, got.Metadata.Get("x-death"), `"queue":"`+from+`"`)
}

func TestForeignMessage(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	require.NoError(t, openChannel(t, amqpURI(t)).PublishWithContext(t.Context(), "", topic, true, false, amqp091.Publishing{
		Headers: amqp091.Table{"attempt": int32(2), "tags": []any{"a", "b"}, "none": nil},
		Body:    []byte("from elsewhere"),
	}))
	got := receive(t, subscribe(t, amqpbroker.DefaultQueueConfig(amqpURI(t)), topic), 1)[0]
	require.Empty(t, got.UUID)
	require.Equal(t, message.Metadata{"attempt": "2", "tags": `["a","b"]`, "none": ""}, got.Metadata)
	require.Equal(t, "from elsewhere", string(got.Payload))
}

func TestEachGroupGetsEachMessage(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	billing := amqpbroker.DefaultSubscriberConfig(amqpURI(t), group)
	fraud := amqpbroker.DefaultSubscriberConfig(amqpURI(t), group+"2")
	require.NoError(t, amqpbroker.EnsureTopology(billing, topic))
	require.NoError(t, amqpbroker.EnsureTopology(fraud, topic))
	t.Cleanup(func() {
		_, err := openChannel(t, amqpURI(t)).QueueDelete(topic+"_"+group+"2", false, false, false)
		require.NoError(t, err)
	})
	sent := numbered(1, "")[0]
	require.NoError(t, newPublisher(t, amqpbroker.DefaultPublisherConfig(amqpURI(t))).Publish(topic, sent))
	require.Equal(t, sent.UUID, receive(t, subscribe(t, billing, topic), 1)[0].UUID)
	require.Equal(t, sent.UUID, receive(t, subscribe(t, fraud, topic), 1)[0].UUID)
}

// RabbitMQ would give the messages to both in turn, and two processes would have two messages of a
// key at a time.
func TestSubscribersOfAGroup_G3_one_at_a_time_gets_messages_in_order(t *testing.T) {
	t.Parallel()
	const half = 20
	topic := newTopic(t)
	config := amqpbroker.DefaultSubscriberConfig(amqpURI(t), group)
	require.NoError(t, amqpbroker.EnsureTopology(config, topic))
	first, err := amqp.NewSubscriber(config, watermill.NopLogger{})
	require.NoError(t, err)
	fromFirst, err := first.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	fromSecond := subscribe(t, config, topic)
	sent := numbered(2*half, "k")
	require.NoError(t, newPublisher(t, amqpbroker.DefaultPublisherConfig(amqpURI(t))).Publish(topic, sent...))

	for i, msg := range receive(t, fromFirst, half) {
		require.Equal(t, sent[i].UUID, msg.UUID)
	}
	require.Empty(t, fromSecond)
	require.NoError(t, first.Close())
	for i, msg := range receive(t, fromSecond, half) {
		require.Equal(t, sent[half+i].UUID, msg.UUID)
	}
}

func TestDelayNackWaitsOnlyAfterAnError(t *testing.T) {
	t.Parallel()
	const delay = 30 * time.Millisecond
	errFailed := errors.New("failed")
	handle := func(result error) (time.Duration, error) {
		start := time.Now()
		_, err := amqpbroker.DelayNack(delay)(func(*message.Message) ([]*message.Message, error) {
			return nil, result
		})(message.NewMessage("id", nil))
		return time.Since(start), err
	}
	took, err := handle(errFailed)
	require.ErrorIs(t, err, errFailed)
	require.GreaterOrEqual(t, took, delay)

	_, err = handle(nil)
	require.NoError(t, err)
}

func TestDelayNackEndsWithTheContext(t *testing.T) {
	t.Parallel()
	errFailed := errors.New("failed")
	msg := message.NewMessage("id", nil)
	msg.SetContext(canceled(t))
	_, err := amqpbroker.DelayNack(time.Hour)(func(*message.Message) ([]*message.Message, error) {
		return nil, errFailed
	})(msg)
	require.ErrorIs(t, err, errFailed)
}
