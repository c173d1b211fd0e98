package amqpbroker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

func TestLostConnectionIsAnOutageThatEnds(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	connection := newProxy(t)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(connection.uri))
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))

	connection.setDown(true)
	for range 3 {
		err := publisher.Publish(topic, numbered(1, "")...)
		require.ErrorIs(t, err, amqpbroker.ErrNotConnected)
		require.Equal(t, postbox.Outage, amqpbroker.Classify(err))
	}
	connection.setDown(false)
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...), "the first one connects again")
	require.Equal(t, 2, depth(t, topic))
}

// Nothing that Publish reported as done may be lost, however often the connection goes.
func TestConnectionLostUnderLoad(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	connection := newProxy(t)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(connection.uri))

	const publishers, calls = 8, 60
	var running sync.WaitGroup
	var mu sync.Mutex
	confirmed := make(map[string]bool)
	lost := 0
	reached := make(chan struct{}, publishers*calls)
	for range publishers {
		running.Go(func() {
			for range calls {
				batch := numbered(3, "")
				err := publisher.Publish(topic, batch...)
				for errors.Is(err, amqpbroker.ErrNotConnected) {
					mu.Lock()
					lost++
					mu.Unlock()
					err = publisher.Publish(topic, batch...)
				}
				if err != nil {
					t.Errorf("unexpected: %v", err)
				}
				mu.Lock()
				for _, msg := range batch {
					confirmed[msg.UUID] = true
				}
				mu.Unlock()
				reached <- struct{}{}
			}
		})
	}
	for n := range publishers * calls {
		if n%100 == 50 {
			connection.setDown(true)
			connection.setDown(false)
		}
		<-reached
	}
	running.Wait()
	require.Positive(t, lost)
	require.Len(t, confirmed, publishers*calls*3)

	messages := subscribe(t, amqpbroker.DefaultQueueConfig(amqpURI(t)), topic)
	for len(confirmed) > 0 {
		delete(confirmed, receive(t, messages, 1)[0].UUID)
	}
}

func TestSilentBrokerIsAnOutage(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	connection := newProxy(t)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(connection.uri))
	publisher.SetConfirmTimeout(200 * time.Millisecond)
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))

	connection.setDeaf(true)
	err := publisher.Publish(topic, numbered(5, "")...)
	require.ErrorIs(t, err, amqpbroker.ErrNotConfirmed)
	require.Equal(t, postbox.Outage, amqpbroker.Classify(err))

	connection.setDeaf(false)
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))
	require.Equal(t, 2, depth(t, topic))
}

func TestContextOfTheMessageEndsTheWait(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	connection := newProxy(t)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(connection.uri))
	publisher.SetConfirmTimeout(time.Second) // also bounds how long an unused channel is waited for
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))

	connection.setDeaf(true)
	batch := numbered(2, "")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	batch[1].SetContext(ctx)
	batch[0].SetContext(ctx)
	err := publisher.Publish(topic, batch...)
	require.ErrorIs(t, err, amqpbroker.ErrNotConfirmed)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	connection.setDeaf(false)
	require.ErrorIs(t, publisher.Publish(topic, batch...), amqpbroker.ErrNotConfirmed, "the context has ended: not even sent")
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))
	require.Equal(t, 2, depth(t, topic))
}

// RabbitMQ reports an alarm, low memory for example, with connection.blocked.
func TestBrokerThatTakesNothingIsAnOutage(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	connection := newProxy(t)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(connection.uri))
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))

	blocked := []byte{1, 0, 0, 0, 0, 0, 8, 0, 10, 0, 60, 3, 'l', 'o', 'w', 0xCE}
	unblocked := []byte{1, 0, 0, 0, 0, 0, 4, 0, 10, 0, 61, 0xCE}
	connection.inject(t, blocked)
	require.Eventually(t, func() bool {
		err := publisher.Publish(topic, numbered(1, "")...)
		if err != nil {
			require.ErrorIs(t, err, amqpbroker.ErrBlocked)
			require.Equal(t, postbox.Outage, amqpbroker.Classify(err))
		}
		return err != nil
	}, patience, time.Millisecond)

	connection.inject(t, unblocked)
	require.Eventually(t, func() bool {
		return publisher.Publish(topic, numbered(1, "")...) == nil
	}, patience, time.Millisecond)
}

func TestCloseDoesNotWaitForASilentBroker(t *testing.T) {
	t.Parallel()
	topic := newTopic(t)
	ensureQueue(t, topic)
	connection := newProxy(t)
	publisher := newPublisher(t, amqpbroker.DefaultQueueConfig(connection.uri))
	require.NoError(t, publisher.Publish(topic, numbered(1, "")...))
	connection.setDeaf(true)
	start := time.Now()
	require.NoError(t, publisher.Close())
	require.Less(t, time.Since(start), amqpbroker.ConfirmTimeout)
}
