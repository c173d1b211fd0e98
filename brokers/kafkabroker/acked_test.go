package kafkabroker_test

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// Found by make torture: when a message fails for good, sarama's idempotent producer begins a new
// epoch, and sends what it holds for another try with the old numbers in the new epoch. The broker
// takes some of it for duplicates, and sarama reports success for messages that are nowhere. Also
// covers G3 and F17.
func TestPublisher_G2_acked_messages_are_stored_although_others_failed(t *testing.T) {
	t.Parallel()
	eachPublisher(t, testAckedMessagesAreThere)
}

func testAckedMessagesAreThere(t *testing.T, open openPublisher) {
	t.Helper()
	const (
		keys, cuts, partitions = 64, 8, 3
		limit                  = 100_000 // bytes of a batch, for the topic
	)
	topic := newTopic(t, func(details *sarama.TopicDetail) {
		text := strconv.Itoa(limit)
		details.NumPartitions, details.ConfigEntries = partitions, map[string]*string{"max.message.bytes": &text}
	})
	connection := &network{dial: func(protocol, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(t.Context(), protocol, address)
	}}
	config := kafkabroker.DefaultPublisherConfig(kafkaBrokers(t))
	config.OverwriteSaramaConfig.Net.Proxy.Enable = true
	config.OverwriteSaramaConfig.Net.Proxy.Dialer = connection
	config.OverwriteSaramaConfig.Producer.Retry.Backoff = 20 * time.Millisecond
	publisher := open.publisher(t, config)

	// Each key publishes one message at a time, again and again until it is accepted, as a
	// forwarder does.
	over := make(chan struct{})
	acked := make([][]string, keys)
	var publishing sync.WaitGroup
	for k := range keys {
		publishing.Go(func() {
			for !ended(over) {
				msg := keyedMessage(fmt.Sprintf("key-%d", k))
				for publisher.Publish(topic, msg) != nil {
				}
				acked[k] = append(acked[k], msg.UUID)
			}
		})
	}
	publishing.Go(func() {
		for n := 0; !ended(over); n++ {
			refused := keyedMessage(fmt.Sprintf("refused-%d", n))
			refused.Payload = make([]byte, 2*limit)
			_ = publisher.Publish(topic, refused)
		}
	})
	pulse := time.NewTicker(time.Second)
	defer pulse.Stop()
	for range cuts {
		<-pulse.C
		connection.setDown(true)
		connection.setDown(false)
	}
	close(over)
	publishing.Wait()

	requireStored(t, topic, acked)
}

func ended(over chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// requireStored fails unless the topic has all messages of each key, the first copy of each in
// their order.
func requireStored(t *testing.T, topic string, acked [][]string) {
	t.Helper()
	stored := map[string][]string{}
	seen, missing := map[string]bool{}, map[string]bool{}
	for _, ids := range acked {
		for _, id := range ids {
			missing[id] = true
		}
	}
	total := len(missing)
	messages := subscribe(t, topic)
	deadline := time.After(patience)
	for len(missing) > 0 {
		select {
		case msg := <-messages:
			key, _ := kafka.MessageKeyFromCtx(msg.Context())
			if !seen[msg.UUID] {
				stored[string(key)] = append(stored[string(key)], msg.UUID)
			}
			seen[msg.UUID] = true
			delete(missing, msg.UUID)
			msg.Ack()
		case <-deadline:
			require.Failf(t, "messages that the producer reported as written are not there", "%d of %d", len(missing), total)
		}
	}
	for k, ids := range acked {
		require.Equal(t, ids, stored[fmt.Sprintf("key-%d", k)][:len(ids)], "key-%d", k)
	}
	t.Logf("%d messages, none lost", total)
}
