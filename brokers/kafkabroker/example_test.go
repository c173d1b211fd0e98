package kafkabroker_test

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// What a forwarder publishes through.
func ExampleDefaultPublisherConfig() {
	config := kafkabroker.DefaultPublisherConfig([]string{"localhost:9092"})

	producer := config.OverwriteSaramaConfig.Producer
	fmt.Println("all replicas:", producer.RequiredAcks == -1)
	fmt.Println("retries:", producer.Retry.Max, "every", producer.Retry.Backoff)

	msg := message.NewMessage(postbox.NewMessageID(), []byte(`{"order":7}`))
	msg.Metadata.Set(postbox.MetadataOrderingKey, "customer-1")
	record, err := config.Marshaler.Marshal("orders", msg)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("record key:", record.Key)
	// Output:
	// all replicas: true
	// retries: 20 every 500ms
	// record key: customer-1
}

// What an inbox listens to.
func ExampleDefaultSubscriberConfig() {
	config := kafkabroker.DefaultSubscriberConfig([]string{"localhost:9092"}, "billing")
	config.InitializeTopicDetails.NumPartitions = 24

	subscriber, err := kafka.NewSubscriber(config, nil) // connects with the first Subscribe
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = subscriber.Close() }()

	offsets := config.OverwriteSaramaConfig.Consumer.Offsets
	fmt.Println("group:", config.ConsumerGroup)
	fmt.Println("from the oldest message:", offsets.Initial == -2)
	fmt.Println("after a nack:", config.NackResendSleep)
	// Output:
	// group: billing
	// from the oldest message: true
	// after a nack: 1s
}

// What is wrong with the cluster waits, what is wrong with the message counts.
func ExampleClassify() {
	fmt.Println(kafkabroker.Classify(sarama.ErrNotEnoughReplicas) == postbox.Outage)
	fmt.Println(kafkabroker.Classify(sarama.ErrMessageSizeTooLarge) == postbox.MessageFault)
	fmt.Println(kafkabroker.Classify(errors.New("out of paper")) == postbox.Unclassified)
	// Output:
	// true
	// true
	// true
}
