package amqpbroker

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
)

// EnsureTopology declares the exchange, the queue and the binding of each topic, as an
// amqp.Subscriber with that configuration would. Call it for every destination, and every group of
// consumers, before any message is published, because RabbitMQ drops a message that reaches no
// queue. An object that already exists in the same form is left alone. If it exists in another
// form, that is an error, and nothing after it is declared.
//
// EnsureTopology stays connected to RabbitMQ for as long as it takes, at most about 30 seconds if
// RabbitMQ does not answer, and returns the first error.
func EnsureTopology(config amqp.Config, topics ...string) error {
	if err := validateURI(config.Connection.AmqpURI); err != nil {
		return fmt.Errorf("connect to declare the topology: %w", err)
	}
	subscriber, err := amqp.NewSubscriber(config, watermill.NopLogger{})
	if err != nil {
		return fmt.Errorf("connect to declare the topology: %w", err)
	}
	for _, topic := range topics {
		if err := subscriber.SubscribeInitialize(topic); err != nil {
			_ = subscriber.Close() // it never returns an error, and the first one matters
			return fmt.Errorf("declare the topology of topic %.300q: %w", topic, err)
		}
	}
	if err := subscriber.Close(); err != nil {
		return fmt.Errorf("disconnect after declaring the topology: %w", err)
	}
	return nil
}
