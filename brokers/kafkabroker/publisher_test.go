package kafkabroker_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

func TestPublisherConfigIsAcceptedByTheClients(t *testing.T) {
	t.Parallel()
	config := kafkabroker.PublisherConfig([]string{"localhost:9092"})
	require.NoError(t, config.Validate())
	require.NoError(t, config.OverwriteSaramaConfig.Validate())
}

func TestPublisherConfigIsNewEachTime(t *testing.T) {
	t.Parallel()
	changed := kafkabroker.PublisherConfig(nil)
	changed.OverwriteSaramaConfig.ClientID = "mine"
	require.Equal(t, "postbox", kafkabroker.PublisherConfig(nil).OverwriteSaramaConfig.ClientID)
}

func TestS4_4_1_MessagesOfOneKeyStayInOnePartitionAndInOrder(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, nil)
	const keys, each = 8, 10
	publisher := newPublisher(t)
	for n := range each {
		for k := range keys {
			msg := keyedMessage("key-" + strconv.Itoa(k))
			msg.Payload = []byte(strconv.Itoa(n))
			require.NoError(t, publisher.Publish(topic, msg))
		}
	}

	partitionOf := make(map[string]int32)
	next := make(map[string]int)
	for _, got := range receive(t, subscribe(t, topic), keys*each) {
		key := got.message.Metadata.Get(postbox.OrderingKey)
		require.Equal(t, key, got.recordKey)
		if partition, seen := partitionOf[key]; seen {
			require.Equal(t, partition, got.partition, "key %s", key)
		}
		partitionOf[key] = got.partition
		require.Equal(t, strconv.Itoa(next[key]), string(got.message.Payload), "key %s", key)
		next[key]++
	}
}

// Finding L19: with an empty key all of them would share one partition.
func TestMessagesWithoutKeySpreadOverPartitions(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]func() string{
		"with id":    postbox.NewMessageID,
		"without id": func() string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic(t, nil)
			const count = 64
			publisher := newPublisher(t)
			for range count {
				require.NoError(t, publisher.Publish(topic, message.NewMessage(id(), nil)))
			}
			partitions := make(map[int32]bool)
			for _, got := range receive(t, subscribe(t, topic), count) {
				require.NotEmpty(t, got.recordKey)
				partitions[got.partition] = true
			}
			require.Greater(t, len(partitions), kafkabroker.DefaultPartitions/2)
		})
	}
}

func TestErrorsOfARealBrokerAreClassified(t *testing.T) {
	t.Parallel()
	brokers := kafkaBrokers(t)
	if strings.Contains(os.Getenv("POSTBOX_SERVICES"), "kafka=fake") {
		t.Skip("Kafka itself is missing, and its stand-in does not refuse what a real broker refuses: scripts/services check says what it needs")
	}

	t.Run("larger than the producer allows", func(t *testing.T) {
		t.Parallel()
		err := newPublisher(t).Publish(newTopic(t, nil), message.NewMessage("1", make([]byte, 2<<20)))
		var refused sarama.ConfigurationError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, postbox.MessageFault, kafkabroker.Classify(err))
	})
	t.Run("larger than the topic allows", func(t *testing.T) {
		t.Parallel()
		limit := "1000"
		topic := newTopic(t, func(detail *sarama.TopicDetail) {
			detail.ConfigEntries = map[string]*string{"max.message.bytes": &limit}
		})
		err := newPublisher(t).Publish(topic, message.NewMessage("1", make([]byte, 2000)))
		require.ErrorIs(t, err, sarama.ErrMessageSizeTooLarge)
		require.Equal(t, postbox.MessageFault, kafkabroker.Classify(err))
	})
	t.Run("impossible topic", func(t *testing.T) {
		t.Parallel()
		err := newPublisher(t).Publish("no spaces allowed", message.NewMessage("1", nil))
		require.ErrorIs(t, err, sarama.ErrInvalidTopic)
		require.Equal(t, postbox.MessageFault, kafkabroker.Classify(err))
	})
	t.Run("compacted topic and no key", func(t *testing.T) {
		t.Parallel()
		compact := "compact"
		topic := newTopic(t, func(detail *sarama.TopicDetail) {
			detail.ConfigEntries = map[string]*string{"cleanup.policy": &compact}
		})
		config := kafkabroker.PublisherConfig(brokers)
		config.Marshaler = kafka.DefaultMarshaler{}
		publisher, err := kafka.NewPublisher(config, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, publisher.Close()) }()
		err = publisher.Publish(topic, message.NewMessage("1", nil))
		require.ErrorIs(t, err, sarama.ErrInvalidRecord)
		require.Equal(t, postbox.MessageFault, kafkabroker.Classify(err))
	})
}

func TestNoBrokerIsAnOutage(t *testing.T) {
	t.Parallel()
	config := kafkabroker.PublisherConfig([]string{"127.0.0.1:1"})
	config.OverwriteSaramaConfig.Metadata.Retry.Max = 0
	_, err := kafka.NewPublisher(config, nil)
	require.ErrorIs(t, err, sarama.ErrOutOfBrokers)
	require.Equal(t, postbox.Outage, kafkabroker.Classify(err))
}
