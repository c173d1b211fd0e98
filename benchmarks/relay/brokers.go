package relay

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

const (
	// callers call the bare publisher at a time.
	callers = 32
	// brokerBatch is what the packages of the brokers advise.
	brokerBatch = 100
)

// broker is a real one, and how to reach it.
type broker struct {
	name, variable string
	// prepare makes the topic.
	prepare func(address string) error
	// ours and stock make publishers with the same settings.
	ours, stock func(address string) (message.Publisher, error)
	config      forwarder.Config
}

// Kafka drains into Kafka, acks of all replicas.
func Kafka() measure.Scenario {
	stock := func(address string) (message.Publisher, error) {
		return kafka.NewPublisher(kafkabroker.DefaultPublisherConfig(strings.Split(address, ",")), watermill.NopLogger{})
	}
	return broker{
		name: "relay-kafka", variable: "TEST_KAFKA_BROKERS",
		prepare: func(address string) error { // the first message makes the topic, which takes a while
			first, err := stock(address)
			if err != nil {
				return err
			}
			return errors.Join(first.Publish(load.Topic, load.Messages(0, 1)...), first.Close())
		},
		ours: func(address string) (message.Publisher, error) {
			return kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(strings.Split(address, ",")), nil)
		},
		stock:  stock,
		config: forwarder.Config{Classify: kafkabroker.Classify, BatchSize: brokerBatch},
	}.scenario()
}

// RabbitMQ drains into RabbitMQ, with confirms.
func RabbitMQ() measure.Scenario {
	return broker{
		name: "relay-rabbitmq", variable: "TEST_AMQP_URI",
		prepare: func(address string) error {
			return amqpbroker.EnsureTopology(amqpbroker.DefaultQueueConfig(address), load.Topic)
		},
		ours: func(address string) (message.Publisher, error) {
			return amqpbroker.NewPublisher(amqpbroker.DefaultQueueConfig(address), nil)
		},
		stock: func(address string) (message.Publisher, error) {
			return amqp.NewPublisher(amqpbroker.DefaultQueueConfig(address), watermill.NopLogger{})
		},
		config: forwarder.Config{Classify: amqpbroker.Classify, BatchSize: brokerBatch},
	}.scenario()
}

func (b broker) scenario() measure.Scenario {
	atLeast := map[string]float64{"relay-kafka": 8, "relay-rabbitmq": 6}[b.name]
	return measure.Scenario{
		Name:  b.name,
		About: "drain into a real broker that confirms; Watermill's forwarder fewer messages, since it sends one at a time",
		Needs: b.variable,
		Floor: "publisher",
		Contenders: []measure.Contender{
			{Name: "ours", Run: b.with(b.ours, 30_000, 5_000, func(n int, to *sink) measure.Run { return ours(n, to, b.config) })},
			{Name: "watermill", Run: b.with(b.stock, 2_000, 1_000, func(n int, to *sink) measure.Run { return stock(n, to, 0) })},
			{Name: "publisher", Run: b.with(b.ours, 30_000, 5_000, bare)},
		},
		Targets: []measure.Target{
			{Name: b.name, Ours: "ours", Other: "watermill", AtLeast: atLeast},
			{Name: b.name, Ours: "ours", Other: "publisher", AtLeast: 0.85},
		},
	}
}

// with runs a contender that publishes full or quick messages to the broker.
func (b broker) with(connect func(string) (message.Publisher, error), full, quick int, run func(n int, to *sink) measure.Run) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		address := os.Getenv(b.variable)
		if err := b.prepare(address); err != nil {
			return err
		}
		publisher, err := connect(address)
		if err != nil {
			return err
		}
		if err := publisher.Publish(load.Topic, load.Messages(0, 1)...); err != nil { // connects
			return errors.Join(err, publisher.Close())
		}
		n := stage.Scale(full, quick)
		to := newSink(n, 0)
		to.inner = publisher
		return errors.Join(run(n, to)(ctx, stage), publisher.Close())
	}
}

// bare calls the publisher with messages from memory.
func bare(n int, to *sink) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		list := load.Messages(0, n)
		if err := stage.Start(ctx); err != nil {
			return err
		}
		err := load.Clients(ctx, n, callers, func(_ context.Context, i int) error { return to.Publish(load.Topic, list[i]) })
		return errors.Join(err, stage.Stop(n))
	}
}
