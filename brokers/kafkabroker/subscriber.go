package kafkabroker

import (
	"time"

	"github.com/IBM/sarama"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
)

const (
	// defaultPartitions is the number of partitions of a topic that SubscribeInitialize creates
	// under [DefaultSubscriberConfig]. Watermill handles one message of a partition at a time, so
	// this number bounds how many messages of a topic all members of a group handle at once. Twelve
	// partitions can be shared evenly by 2, 3, 4 or 6 members. Choose it carefully: if you add
	// partitions later, keys move to other partitions.
	defaultPartitions = 12

	// clusterReplication leaves the number of replicas to the brokers' default.replication.factor.
	clusterReplication = -1

	nackPause      = time.Second
	reconnectPause = time.Second
)

// DefaultSubscriberConfig returns the configuration of a kafka.Subscriber in front of an inbox: a
// new group starts at the oldest message, and the record's key becomes the ordering key. The
// package comment explains each setting.
//
// The group must not be empty: without one Kafka keeps no record of what was acked, and every start
// reads the topics from their beginning.
//
// SubscribeInitialize creates a topic with 12 partitions; to change that, set NumPartitions
// in InitializeTopicDetails. The result may be changed; every call returns a new one.
func DefaultSubscriberConfig(brokers []string, group string) kafka.SubscriberConfig {
	config := sarama.NewConfig()
	config.ClientID = clientID
	config.Version = protocolVersion

	config.Net.DialTimeout = dialTimeout

	config.Consumer.Return.Errors = true
	config.Consumer.IsolationLevel = sarama.ReadUncommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		sticky{},
		sarama.NewBalanceStrategyRange(), // what Watermill uses: a group can change over one member at a time
	}

	return kafka.SubscriberConfig{
		Brokers:               brokers,
		Unmarshaler:           Marshaler(),
		OverwriteSaramaConfig: config,
		ConsumerGroup:         group,
		NackResendSleep:       nackPause,
		ReconnectRetrySleep:   reconnectPause,
		InitializeTopicDetails: &sarama.TopicDetail{
			NumPartitions:     defaultPartitions,
			ReplicationFactor: clusterReplication,
		},
	}
}

// sticky is sarama's sticky strategy with a new instance for every plan. Sarama's instance keeps
// the state of the plan that it is making, and watermill-kafka makes a consumer group of every
// subscription, all with the strategy of the one configuration.
type sticky struct{}

var _ sarama.BalanceStrategy = sticky{}

// Name implements sarama.BalanceStrategy.
func (sticky) Name() string { return sarama.StickyBalanceStrategyName }

// Plan implements sarama.BalanceStrategy.
func (sticky) Plan(
	members map[string]sarama.ConsumerGroupMemberMetadata,
	topics map[string][]int32,
) (sarama.BalanceStrategyPlan, error) {
	return sarama.NewBalanceStrategySticky().Plan(members, topics)
}

// AssignmentData implements sarama.BalanceStrategy.
func (sticky) AssignmentData(memberID string, topics map[string][]int32, generationID int32) ([]byte, error) {
	return sarama.NewBalanceStrategySticky().AssignmentData(memberID, topics, generationID)
}
