package pubsub_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// The features are those of Watermill's own run of the suite on Kafka. The run on RabbitMQ has the
// full size. Also covers G2.
func TestPubSub_G3_from_outbox_to_Kafka(t *testing.T) {
	t.Parallel()
	testPubSub(t, chain{database: testdb.Postgres(t).Migrate(t), destination: newKafka(t)}, tests.Features{
		ConsumerGroups:  true,
		GuaranteedOrder: true,
		Persistent:      true,
		ForceShort:      true,
	})
}

// apacheKafka is a real Kafka.
type apacheKafka struct {
	brokers []string
	shared  message.Publisher
}

func newKafka(t *testing.T) *apacheKafka {
	t.Helper()
	brokers := strings.Split(testservice.Address(t, testservice.KafkaVariable), ",")
	publisher, err := kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(brokers), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	return &apacheKafka{brokers: brokers, shared: publisher}
}

func (k *apacheKafka) publisher(*testing.T) message.Publisher { return k.shared }

// classify matters: a topic that was just made has no leader yet, and then sarama refuses messages
// at once, for ten seconds.
func (k *apacheKafka) classify(err error) postbox.ErrorClass { return kafkabroker.Classify(err) }

// subscriber returns one in a group of the test's own: Kafka deals partitions out again whenever a
// member of a group comes or goes, and the suite's tests run side by side.
func (k *apacheKafka) subscriber(t *testing.T, group string) message.Subscriber {
	t.Helper()
	config := kafkabroker.DefaultSubscriberConfig(k.brokers, group+"-"+strings.ReplaceAll(t.Name(), "/", "-"))
	config.NackResendSleep, config.ReconnectRetrySleep = 10*time.Millisecond, 10*time.Millisecond // the suite nacks a lot
	subscriber, err := kafka.NewSubscriber(config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) }) // the suite leaves some open
	return subscriber
}

// The forwarder hands over whole batches, and repeats them when they fail: the one that is too
// large must not take others with it, nor let those behind it overtake those before it. Also covers
// G2.
func TestForwarder_G3_to_Kafka_buries_a_message_that_is_too_large(t *testing.T) {
	t.Parallel()
	const keys, each, large = 10, 20, 7 // the one that is too large, of each key
	to := newKafka(t)
	topic := "test-" + watermill.NewUUID()
	setup, err := kafka.NewSubscriber(kafkabroker.DefaultSubscriberConfig(to.brokers, "group-"+topic), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, setup.Close()) }()
	require.NoError(t, setup.SubscribeInitialize(topic))

	database := testdb.SQLite(t).Migrate(t)
	outbox := publisherFor(t, database, nil)
	var batch []*message.Message
	for n := range each {
		for k := range keys {
			msg := newMessage(fmt.Sprintf("%d-%d", k, n), fmt.Sprint("key-", k))
			if n == large {
				msg.Payload = make([]byte, 2*sarama.NewConfig().Producer.MaxMessageBytes)
			}
			batch = append(batch, msg)
		}
	}
	inTx(t, database.DB, outbox, topic, batch...)
	runForwarder(t, database.Postbox(), to.shared, func(c *forwarder.Config) {
		c.Classify, c.BatchSize, c.Concurrency = kafkabroker.Classify, 100, 4
		c.Retry.Attempts = 2
	})

	messages, err := setup.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	order := map[string][]string{}
	seen := map[string]bool{}
	deadline := time.After(patience)
	for len(seen) < keys*(each-1) {
		select {
		case msg := <-messages:
			if key := msg.Metadata.Get(postbox.MetadataOrderingKey); !seen[msg.UUID] {
				seen[msg.UUID], order[key] = true, append(order[key], msg.UUID)
			}
			msg.Ack()
		case <-deadline:
			require.Failf(t, "messages are missing", "%d of %d came", len(seen), keys*(each-1))
		}
	}
	for k := range keys {
		var want []string
		for n := range each {
			if n != large {
				want = append(want, fmt.Sprintf("%d-%d", k, n))
			}
		}
		require.Equal(t, want, order[fmt.Sprint("key-", k)])
	}
	require.Eventually(t, func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_messages") == 0 }, patience, 2*time.Millisecond, "all have an end")
	require.Equal(t, keys, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
}
