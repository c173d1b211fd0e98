package kafkabroker_test

import (
	"strconv"
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
	config := kafkabroker.DefaultPublisherConfig([]string{"localhost:9092"})
	require.NoError(t, config.Validate())
	require.NoError(t, config.OverwriteSaramaConfig.Validate())
}

func TestPublisherConfigIsNewEachTime(t *testing.T) {
	t.Parallel()
	changed := kafkabroker.DefaultPublisherConfig(nil)
	changed.OverwriteSaramaConfig.ClientID = "mine"
	require.Equal(t, "postbox", kafkabroker.DefaultPublisherConfig(nil).OverwriteSaramaConfig.ClientID)
}

func TestMessagesOfOneKeyStayInOnePartitionAndInOrder(t *testing.T) {
	t.Parallel()
	const keys, each = 8, 10
	eachPublisher(t, func(t *testing.T, open openPublisher) {
		topic := newTopic(t, nil)
		publisher := open.publisher(t, kafkabroker.DefaultPublisherConfig(kafkaBrokers(t)))
		for n := range each {
			batch := make([]*message.Message, keys)
			for k := range keys {
				batch[k] = keyedMessage("key-" + strconv.Itoa(k))
				batch[k].Payload = []byte(strconv.Itoa(n))
			}
			require.NoError(t, publisher.Publish(topic, batch...))
		}
		requireOrderOfKeys(t, receive(t, subscribe(t, topic), keys*each))
	})
}

// requireOrderOfKeys wants the messages of each key, numbered from 0 on, in one partition and in
// their order.
func requireOrderOfKeys(t *testing.T, all []received) {
	t.Helper()
	partitionOf := make(map[string]int32)
	next := make(map[string]int)
	for _, got := range all {
		key := got.message.Metadata.Get(postbox.MetadataOrderingKey)
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
	eachPublisher(t, testErrorsOfARealBroker)
}

func testErrorsOfARealBroker(t *testing.T, open openPublisher) {
	t.Helper()
	config := kafkabroker.DefaultPublisherConfig(kafkaBrokers(t))
	needsRefusals(t)

	t.Run("larger than the producer allows", func(t *testing.T) {
		t.Parallel()
		err := open.publisher(t, config).Publish(newTopic(t, nil), message.NewMessage("1", make([]byte, 2<<20)))
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
		err := open.publisher(t, config).Publish(topic, message.NewMessage("1", make([]byte, 2000)))
		require.ErrorIs(t, err, sarama.ErrMessageSizeTooLarge)
		require.Equal(t, postbox.MessageFault, kafkabroker.Classify(err))
	})
	t.Run("impossible topic", func(t *testing.T) {
		t.Parallel()
		err := open.publisher(t, config).Publish("no spaces allowed", message.NewMessage("1", nil))
		require.ErrorIs(t, err, sarama.ErrInvalidTopic)
		require.Equal(t, postbox.MessageFault, kafkabroker.Classify(err))
	})
	t.Run("compacted topic and no key", func(t *testing.T) {
		t.Parallel()
		compact := "compact"
		topic := newTopic(t, func(detail *sarama.TopicDetail) {
			detail.ConfigEntries = map[string]*string{"cleanup.policy": &compact}
		})
		keyless := config
		keyless.Marshaler = kafka.DefaultMarshaler{}
		err := open.publisher(t, keyless).Publish(topic, message.NewMessage("1", nil))
		require.ErrorIs(t, err, sarama.ErrInvalidRecord)
		require.Equal(t, postbox.MessageFault, kafkabroker.Classify(err))
	})
}

func TestNoBrokerIsAnOutage(t *testing.T) {
	t.Parallel()
	eachPublisher(t, func(t *testing.T, open openPublisher) {
		config := kafkabroker.DefaultPublisherConfig([]string{"127.0.0.1:1"})
		config.OverwriteSaramaConfig.Metadata.Retry.Max = 0
		_, err := open(config)
		require.ErrorIs(t, err, sarama.ErrOutOfBrokers)
		require.Equal(t, postbox.Outage, kafkabroker.Classify(err))
	})
}

func TestNewPublisherRefusesWhatLosesMessages(t *testing.T) {
	t.Parallel()
	for problem, change := range map[string]func(*kafka.PublisherConfig){
		"missing brokers":                          func(c *kafka.PublisherConfig) { c.Brokers = nil },
		"missing marshaler":                        func(c *kafka.PublisherConfig) { c.Marshaler = nil },
		"Producer.Return.Successes must be true":   func(c *kafka.PublisherConfig) { c.OverwriteSaramaConfig.Producer.Return.Successes = false },
		"Producer.Return.Errors must be true":      func(c *kafka.PublisherConfig) { c.OverwriteSaramaConfig.Producer.Return.Errors = false },
		"Producer.RequiredAcks must be WaitForAll": func(c *kafka.PublisherConfig) { c.OverwriteSaramaConfig.Producer.RequiredAcks = sarama.NoResponse },
		"Producer.Idempotent must be false":        func(c *kafka.PublisherConfig) { c.OverwriteSaramaConfig.Producer.Idempotent = true },
		"Producer.MaxMessageBytes must be > 0":     func(c *kafka.PublisherConfig) { c.OverwriteSaramaConfig.Producer.MaxMessageBytes = 0 },
	} {
		t.Run(problem, func(t *testing.T) {
			t.Parallel()
			config := kafkabroker.DefaultPublisherConfig([]string{"127.0.0.1:1"})
			change(&config)
			_, err := kafkabroker.NewPublisher(config, nil)
			require.ErrorContains(t, err, problem)
		})
	}
}

// tracer counts the messages that pass it.
type tracer struct {
	kafka.SaramaTracer // nil: nothing else is called

	traced *int
}

// WrapSyncProducer implements kafka.SaramaTracer.
func (c tracer) WrapSyncProducer(_ *sarama.Config, producer sarama.SyncProducer) sarama.SyncProducer {
	return tracedProducer{producer, c.traced}
}

type tracedProducer struct {
	sarama.SyncProducer

	traced *int
}

// SendMessages counts.
func (p tracedProducer) SendMessages(records []*sarama.ProducerMessage) error {
	*p.traced += len(records)
	return p.SyncProducer.SendMessages(records)
}

func TestNewPublisherHonoursItsConfiguration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*kafka.PublisherConfig)
		key    string
		traced int
	}{
		"tracer":           {func(*kafka.PublisherConfig) {}, "a", 2},
		"OpenTelemetry":    {func(c *kafka.PublisherConfig) { c.OTELEnabled, c.Tracer = true, nil }, "a", 0},
		"default settings": {func(c *kafka.PublisherConfig) { c.OverwriteSaramaConfig = nil }, "a", 2},
		"marshaler":        {func(c *kafka.PublisherConfig) { c.Marshaler = kafka.DefaultMarshaler{} }, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic(t, nil)
			traced := 0
			config := kafkabroker.DefaultPublisherConfig(kafkaBrokers(t))
			config.Tracer = tracer{traced: &traced}
			test.change(&config)
			publisher, err := kafkabroker.NewPublisher(config, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, publisher.Close()) }()
			require.NoError(t, publisher.Publish(topic, messages("a1 a2")...))
			require.Equal(t, test.traced, traced)
			for _, got := range receive(t, subscribe(t, topic), 2) {
				require.Equal(t, test.key, got.recordKey)
			}
		})
	}
}
