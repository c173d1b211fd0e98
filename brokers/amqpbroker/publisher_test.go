package amqpbroker_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

func TestPubSubRoundTrip(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	config := amqpbroker.DefaultSubscriberConfig(amqpURI(t), group)
	require.NoError(t, amqpbroker.EnsureTopology(config, topic))
	sent := numbered(1, "customer-7")[0]
	sent.Metadata.Set("naïve", "\x00\xff")
	require.NoError(t, newPublisher(t, amqpbroker.DefaultPublisherConfig(amqpURI(t))).Publish(topic, sent))

	got := receive(t, subscribe(t, config, topic), 1)[0]
	require.True(t, sent.Equals(got), "%v", got)
	require.Equal(t, "customer-7", got.Metadata.Get(postbox.MetadataOrderingKey))
}

func TestOrderIsKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		count int
		key   string
	}{
		"one key":                   {50, "k"},
		"no key":                    {50, ""},
		"no key and several rounds": {300, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic(t)
			ensureQueue(t, topic)
			config := amqpbroker.DefaultQueueConfig(amqpURI(t))
			require.NoError(t, newPublisher(t, config).Publish(topic, numbered(test.count, test.key)...))
			for i, got := range receive(t, subscribe(t, config, topic), test.count) {
				require.Equal(t, strconv.Itoa(i), string(got.Payload))
			}
		})
	}
}

// When Publish returns, the broker has the messages: nothing is left in a buffer of the client.
func TestPublishedMeansConfirmed(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(amqpURI(t)))
	total := 0
	for _, count := range []int{1, 0, 128, 129, 500} {
		require.NoError(t, publisher.Publish(topic, numbered(count, "")...))
		total += count
		require.Equal(t, total, depth(t, topic))
	}
}

func TestConcurrentPublishAndClose(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(amqpURI(t)))
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))

	const publishers, calls = 100, 5 // more than there are idle channels
	var running sync.WaitGroup
	failures := make(chan error, publishers*calls)
	for range publishers {
		running.Go(func() {
			for range calls {
				failures <- publisher.Publish(topic, numbered(2, "")...)
			}
		})
	}
	published := 1
	for n := range publishers * calls {
		if n == publishers {
			for range 3 {
				running.Go(func() { _ = publisher.Close() })
			}
		}
		if err := <-failures; err == nil {
			published += 2
		} else {
			require.ErrorIs(t, err, postbox.ErrClosed, "calls in flight are waited for")
		}
	}
	running.Wait()
	require.Equal(t, published, depth(t, topic))
	require.NoError(t, publisher.Close())
}

func TestPublishAfterClose(t *testing.T) {
	t.Parallel()
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(nowhere))
	require.NoError(t, publisher.Close())
	require.NoError(t, publisher.Close())
	err := publisher.Publish("topic", message.NewMessage("id", nil))
	require.ErrorIs(t, err, postbox.ErrClosed)
	require.Equal(t, postbox.Outage, amqpbroker.Classify(err), "a stopping process must not count attempts")
}

func TestServiceStartsWithoutBroker(t *testing.T) {
	t.Parallel()
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(nowhere))
	require.NoError(t, publisher.Publish("topic"), "nothing to publish needs no broker")
	err := publisher.Publish("topic", message.NewMessage("id", nil))
	require.ErrorIs(t, err, amqpbroker.ErrNotConnected)
	require.Equal(t, postbox.Outage, amqpbroker.Classify(err))
	require.NotContains(t, err.Error(), "secret")
}

// A message that has to be sent again must not be overtaken by a later one of its key.
func TestMessagesOfOneKeyWaitForEachOther(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{1, 1, 1}, amqpbroker.Windows("a", "a", "a"))
	require.Equal(t, []int{3, 2}, amqpbroker.Windows("a", "b", "", "b", ""))
	require.Equal(t, []int{128, 128, 44}, amqpbroker.Windows(make([]string, 300)...))
	require.Nil(t, amqpbroker.Windows())
}
