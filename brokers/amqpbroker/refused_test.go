package amqpbroker_test

import (
	"errors"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

func requireRefused(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, amqpbroker.ErrMessageRefused)
	require.Equal(t, postbox.MessageFault, amqpbroker.Classify(err))
}

func TestMessageThatAMQPCannotCarryIsRefused(t *testing.T) {
	t.Parallel()
	withProperty := func(change func(*amqp091.Publishing)) amqp.Config {
		config := amqpbroker.DefaultQueueConfig(nowhere)
		config.Marshaler = amqpbroker.Marshaler{DefaultMarshaler: amqp.DefaultMarshaler{
			PostprocessPublishing: func(p amqp091.Publishing) amqp091.Publishing {
				change(&p)
				return p
			},
		}}
		return config
	}
	long := strings.Repeat("x", 256)
	for name, test := range map[string]struct {
		config amqp.Config
		topic  string
		key    string
	}{
		"metadata key":   {amqpbroker.DefaultQueueConfig(nowhere), "topic", long},
		"queue name":     {amqpbroker.DefaultQueueConfig(nowhere), long, "key"},
		"exchange name":  {amqpbroker.DefaultPublisherConfig(nowhere), long, "key"},
		"correlation id": {withProperty(func(p *amqp091.Publishing) { p.CorrelationId = long }), "topic", "key"},
		"header's type":  {withProperty(func(p *amqp091.Publishing) { p.Headers["odd"] = struct{}{} }), "topic", "key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg := message.NewMessage("id", nil)
			msg.Metadata.Set(test.key, "value")
			requireRefused(t, newPublisher(t, test.config).Publish(test.topic, msg))
		})
	}
}

type brokenMarshaler struct{ amqpbroker.Marshaler }

var errBroken = errors.New("broken")

func (brokenMarshaler) Marshal(*message.Message) (amqp091.Publishing, error) {
	return amqp091.Publishing{}, errBroken
}

func TestMessageThatCannotBeMarshalledIsRefused(t *testing.T) {
	t.Parallel()
	config := amqpbroker.DefaultQueueConfig(nowhere)
	config.Marshaler = brokenMarshaler{}
	err := newPublisher(t, config).Publish("topic", message.NewMessage("id", nil))
	requireRefused(t, err)
	require.ErrorIs(t, err, errBroken)
}

func TestLongestNamesArrive(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	sent := message.NewMessage("id", nil)
	sent.Metadata.Set(strings.Repeat("x", 255), "value")
	require.NoError(t, newPublisher(t, amqpbroker.DefaultQueueConfig(amqpURI(t))).Publish(topic, sent))
	require.True(t, sent.Equals(receive(t, subscribe(t, amqpbroker.DefaultQueueConfig(amqpURI(t)), topic), 1)[0]))
}

// A frame above the agreed size would cost everybody the connection. The largest metadata that is
// let through must be taken by RabbitMQ, and the refused one nothing but refused.
func TestMetadataMustFitIntoAFrame(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(amqpURI(t)))
	withMetadata := func(size int) *message.Message {
		msg := message.NewMessage("id", nil)
		msg.Metadata.Set("key", strings.Repeat("v", size))
		return msg
	}
	const frame = 131072 // RabbitMQ's default
	require.NoError(t, publisher.Publish(topic, withMetadata(0)))
	requireRefused(t, publisher.Publish(topic, withMetadata(frame)))

	smallest, largest := 0, frame // let through, refused
	for largest-smallest > 1 {
		size := (smallest + largest) / 2
		if err := publisher.Publish(topic, withMetadata(size)); err == nil {
			smallest = size
		} else {
			requireRefused(t, err)
			largest = size
		}
	}
	require.Greater(t, smallest, frame-200)
}

// RabbitMQ closes the channel over such a message; the ones after it must not suffer.
func TestMessageThatRabbitMQRefusesDoesNotAffectLaterOnes(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	config := amqpbroker.DefaultQueueConfig(amqpURI(t))
	config.Marshaler = amqpbroker.Marshaler{DefaultMarshaler: amqp.DefaultMarshaler{
		PostprocessPublishing: func(p amqp091.Publishing) amqp091.Publishing {
			p.Expiration, _ = p.Headers["expiration"].(string)
			return p
		},
	}}
	publisher := newPublisher(t, config)
	bad := message.NewMessage("bad", nil)
	bad.Metadata.Set("expiration", "soon")
	requireRefused(t, publisher.Publish(topic, bad))
	require.NoError(t, publisher.Publish(topic, message.NewMessage("good", nil)))
	requireRefused(t, publisher.Publish(topic, append(numbered(5, ""), bad)...))
	require.NoError(t, publisher.Publish(topic, message.NewMessage("good", nil)))
}
