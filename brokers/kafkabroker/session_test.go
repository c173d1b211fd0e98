package kafkabroker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// The first member holds a message, as an inbox does that pauses before a nack, until the context of
// the message ends. A second member joins and gets it: without the end of the context it would wait
// until the group has thrown the first one out, after a minute.
func TestSubscriber_G3_a_message_that_pauses_holds_up_no_rebalance(t *testing.T) {
	t.Parallel()
	topic := "test-" + watermill.NewUUID()
	member := func() <-chan *message.Message {
		config := kafkabroker.DefaultSubscriberConfig(kafkaBrokers(t), "group-"+topic)
		config.InitializeTopicDetails.NumPartitions = 2
		subscriber, err := kafkabroker.NewSubscriber(config, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, subscriber.Close()) })
		require.NoError(t, subscriber.SubscribeInitialize(topic))
		messages, err := subscriber.Subscribe(t.Context(), topic)
		require.NoError(t, err)
		return messages
	}
	first := member()
	publisher, err := kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(kafkaBrokers(t)), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	for range 20 { // some for each partition
		require.NoError(t, publisher.Publish(topic, message.NewMessage(watermill.NewUUID(), nil)))
	}
	pausing := <-first
	second := member()
	rebalanced := time.After(50 * time.Second)
	select {
	case <-pausing.Context().Done():
	case <-rebalanced:
		require.Fail(t, "the pause outlives the session")
	}
	require.True(t, pausing.Nack())
	for done := false; !done; {
		select {
		case msg := <-second:
			require.NoError(t, msg.Context().Err())
			msg.Ack()
			done = true
		case msg := <-first:
			msg.Ack()
		case <-rebalanced:
			require.Fail(t, "the second member gets nothing")
			done = true
		}
	}
}
