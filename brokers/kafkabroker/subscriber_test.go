package kafkabroker_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

func TestSubscriberConfigIsAcceptedByTheClients(t *testing.T) {
	t.Parallel()
	config := kafkabroker.DefaultSubscriberConfig([]string{"localhost:9092"}, "group")
	require.NoError(t, config.Validate())
	require.NoError(t, config.OverwriteSaramaConfig.Validate())
}

// Finding L20: a new group starts at the newest message unless told otherwise.
func TestMessageFromBeforeTheGroupsFirstJoinIsDelivered(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, nil)
	sent := keyedMessage("k")
	require.NoError(t, newPublisher(t).Publish(topic, sent))

	got := receive(t, subscribe(t, topic), 1)[0].message
	require.Equal(t, sent.UUID, got.UUID)
	require.Equal(t, sent.Metadata, got.Metadata)
	require.Equal(t, sent.Payload, got.Payload)
}

func TestNackedMessageIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, nil)
	require.NoError(t, newPublisher(t).Publish(topic, keyedMessage("k")))

	messages := subscribe(t, topic)
	first := <-messages
	first.Nack()
	again := receive(t, messages, 1)[0].message
	require.Equal(t, first.UUID, again.UUID)
	require.Equal(t, "k", again.Metadata.Get(postbox.MetadataOrderingKey))
}

func TestForeignRecord(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, nil)
	producer, err := sarama.NewSyncProducer(kafkaBrokers(t), kafkabroker.DefaultPublisherConfig(nil).OverwriteSaramaConfig)
	require.NoError(t, err)
	defer func() { require.NoError(t, producer.Close()) }()
	partition, offset, err := producer.SendMessage(&sarama.ProducerMessage{
		Topic: topic,
		Key:   sarama.StringEncoder("customer-7"),
		Value: sarama.StringEncoder("from elsewhere"),
	})
	require.NoError(t, err)

	got := receive(t, subscribe(t, topic), 1)[0]
	require.Empty(t, got.message.UUID)
	require.Equal(t, "customer-7", got.message.Metadata.Get(postbox.MetadataOrderingKey))
	require.Equal(t, partition, got.partition)
	gotOffset, ok := kafka.MessagePartitionOffsetFromCtx(got.message.Context())
	require.True(t, ok)
	require.Equal(t, offset, gotOffset)
}

func TestSubscribeInitializeCreatesPartitions(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, func(detail *sarama.TopicDetail) { detail.NumPartitions = 3 })
	client, err := sarama.NewClient(kafkaBrokers(t), kafkabroker.DefaultPublisherConfig(nil).OverwriteSaramaConfig)
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	partitions, err := client.Partitions(topic)
	require.NoError(t, err)
	require.Len(t, partitions, 3)
	replicas, err := client.Replicas(topic, 0)
	require.NoError(t, err)
	require.Len(t, replicas, 1, "the replication factor of the cluster")
}

// Watermill makes one consumer group of each subscription, so one configuration plans for several
// groups at a time. Under the race detector this fails with sarama's own sticky strategy.
func TestStrategiesCanPlanConcurrently(t *testing.T) {
	t.Parallel()
	members := map[string]sarama.ConsumerGroupMemberMetadata{
		"a": {Topics: []string{"topic"}}, "b": {Topics: []string{"topic"}},
	}
	topics := map[string][]int32{"topic": {0, 1, 2, 3}}
	for _, strategy := range kafkabroker.DefaultSubscriberConfig(nil, "g").OverwriteSaramaConfig.Consumer.Group.Rebalance.GroupStrategies {
		var planners sync.WaitGroup
		for range 4 {
			planners.Go(func() {
				plan, err := strategy.Plan(members, topics)
				if err != nil || len(plan["a"]["topic"]) != 2 || len(plan["b"]["topic"]) != 2 {
					t.Errorf("%s: plan %v, error %v", strategy.Name(), plan, err)
				}
			})
		}
		planners.Wait()
	}
}

func TestStickyKeepsPartitionsWhenAMemberComes(t *testing.T) {
	t.Parallel()
	strategy := kafkabroker.DefaultSubscriberConfig(nil, "g").OverwriteSaramaConfig.Consumer.Group.Rebalance.GroupStrategies[0]
	require.Equal(t, sarama.StickyBalanceStrategyName, strategy.Name())
	held := map[string][]int32{"topic": {3, 4, 5}}
	data, err := strategy.AssignmentData("a", held, 1)
	require.NoError(t, err)
	plan, err := strategy.Plan(map[string]sarama.ConsumerGroupMemberMetadata{
		"a": {Version: 1, Topics: []string{"topic"}, UserData: data}, "b": {Version: 1, Topics: []string{"topic"}},
	}, map[string][]int32{"topic": {0, 1, 2, 3, 4, 5}})
	require.NoError(t, err)
	require.ElementsMatch(t, held["topic"], plan["a"]["topic"])
	require.ElementsMatch(t, []int32{0, 1, 2}, plan["b"]["topic"])
}

func TestCoordinates(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, func(detail *sarama.TopicDetail) { detail.NumPartitions = 1 })
	publisher := newPublisher(t)
	for range 2 {
		require.NoError(t, publisher.Publish(topic, message.NewMessage("", nil)))
	}
	subscriber, err := kafka.NewSubscriber(kafkabroker.DefaultSubscriberConfig(kafkaBrokers(t), "group-"+topic), nil)
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	seen := make(chan string, 2)
	router.AddConsumerHandler("coordinates", topic, subscriber, func(msg *message.Message) error {
		coordinates, err := kafkabroker.Coordinates(msg)
		require.NoError(t, err)
		seen <- coordinates
		return nil
	})
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(t.Context()) }()

	require.True(t, strings.HasPrefix(<-seen, topic+"/0/0"))
	require.True(t, strings.HasPrefix(<-seen, topic+"/0/1"))
	require.NoError(t, router.Close())
	require.NoError(t, <-stopped)
}

func TestNoCoordinatesOutsideKafka(t *testing.T) {
	t.Parallel()
	coordinates, err := kafkabroker.Coordinates(message.NewMessage("1", nil))
	require.ErrorIs(t, err, postbox.ErrPermanent)
	require.Empty(t, coordinates)
}

func TestNoCoordinatesOutsideARouter(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, nil)
	require.NoError(t, newPublisher(t).Publish(topic, keyedMessage("k")))
	_, err := kafkabroker.Coordinates(receive(t, subscribe(t, topic), 1)[0].message)
	require.Error(t, err, "two topics have a partition and an offset in common")
}
