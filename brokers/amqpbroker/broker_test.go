package amqpbroker_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

const (
	// patience is how long a test waits for what should happen soon.
	patience = 30 * time.Second
	group    = "group"
)

// amqpURI returns the address of a real RabbitMQ, or skips the test.
func amqpURI(tb testing.TB) string {
	tb.Helper()
	return testservice.Address(tb, testservice.AMQPVariable)
}

// newTopic returns the name of a topic of the test's own. Its exchange and queues are deleted at
// the end.
func newTopic(tb testing.TB) string {
	tb.Helper()
	uri := amqpURI(tb)
	topic := "test-" + watermill.NewUUID()
	tb.Cleanup(func() {
		channel := openChannel(tb, uri)
		for _, queue := range []string{topic, topic + "_" + group} {
			_, err := channel.QueueDelete(queue, false, false, false)
			require.NoError(tb, err)
		}
		require.NoError(tb, channel.ExchangeDelete(topic, false, false))
	})
	return topic
}

// openChannel opens a channel that bypasses the code under test.
func openChannel(tb testing.TB, uri string) *amqp091.Channel {
	tb.Helper()
	conn, err := amqp091.Dial(uri)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, conn.Close()) })
	channel, err := conn.Channel()
	require.NoError(tb, err)
	return channel
}

func newPublisher(tb testing.TB, config amqp.Config) *amqpbroker.Publisher {
	tb.Helper()
	publisher, err := amqpbroker.NewPublisher(config, nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, publisher.Close()) })
	return publisher
}

// ensureQueue declares the work queue of a topic.
func ensureQueue(tb testing.TB, topic string) {
	tb.Helper()
	require.NoError(tb, amqpbroker.EnsureTopology(amqpbroker.DefaultQueueConfig(amqpURI(tb)), topic))
}

func subscribe(t *testing.T, config amqp.Config, topic string) <-chan *message.Message {
	t.Helper()
	subscriber, err := amqp.NewSubscriber(config, watermill.NopLogger{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) })
	messages, err := subscriber.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	return messages
}

// receive takes and acks n messages.
func receive(t *testing.T, messages <-chan *message.Message, n int) []*message.Message {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all := make([]*message.Message, 0, n)
	for len(all) < n {
		select {
		case msg := <-messages:
			all = append(all, msg)
			msg.Ack()
		case <-deadline.Done():
			require.Failf(t, "messages are missing", "%d of %d arrived", len(all), n)
		}
	}
	return all
}

// depth returns how many messages stand in a queue.
func depth(t *testing.T, queue string) int {
	t.Helper()
	state, err := openChannel(t, amqpURI(t)).QueueDeclarePassive(queue, true, false, false, false, nil)
	require.NoError(t, err)
	return state.Messages
}

// numbered returns n messages of one ordering key, or of none, with their numbers as payload.
func numbered(n int, key string) []*message.Message {
	all := make([]*message.Message, n)
	for i := range all {
		all[i] = message.NewMessage(postbox.NewMessageID(), []byte(strconv.Itoa(i)))
		if key != "" {
			all[i].Metadata.Set(postbox.MetadataOrderingKey, key)
		}
	}
	return all
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
