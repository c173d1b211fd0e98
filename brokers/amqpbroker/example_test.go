package amqpbroker_test

import (
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

// What a forwarder publishes through, for any number of groups of consumers.
func ExampleDefaultPublisherConfig() {
	config := amqpbroker.DefaultPublisherConfig("amqp://guest:guest@localhost:5672/")

	fmt.Println("exchange:", config.Exchange.GenerateName("orders"), config.Exchange.Type)
	fmt.Println("wait for the confirm:", config.Publish.ConfirmDelivery)
	fmt.Println("report a message without a queue:", config.Publish.Mandatory)
	// Output:
	// exchange: orders fanout
	// wait for the confirm: true
	// report a message without a queue: true
}

// What an inbox listens to.
func ExampleDefaultSubscriberConfig() {
	config := amqpbroker.DefaultSubscriberConfig("amqp://guest:guest@localhost:5672/", "billing")

	fmt.Println("queue:", config.Queue.GenerateName("orders"))
	fmt.Println("fetched ahead:", config.Consume.Qos.PrefetchCount)

	msg, err := config.Marshaler.Unmarshal(amqp091.Delivery{Headers: amqp091.Table{"x-delivery-count": int64(2)}})
	fmt.Println("delivery count:", msg.Metadata.Get("x-delivery-count"), err)
	// Output:
	// queue: orders_billing
	// fetched ahead: 1
	// delivery count: 2 <nil>
}

// The publisher of a work queue. It connects with the first message, so a service starts without
// RabbitMQ.
func ExampleNewPublisher() {
	config := amqpbroker.DefaultQueueConfig("amqp://guest:guest@localhost:5672/")
	publisher, err := amqpbroker.NewPublisher(config, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("exchange and queue:", config.Exchange.GenerateName("orders"), config.Publish.GenerateRoutingKey("orders"))
	fmt.Println(publisher.Close())
	// Output:
	// exchange and queue:  orders
	// <nil>
}

// Nothing is wrong with a message while the connection is lost: it waits.
func ExampleClassify() {
	fmt.Println(amqpbroker.Classify(amqp091.ErrClosed) == postbox.Outage)
	fmt.Println(amqpbroker.Classify(amqp091.ErrFieldType) == postbox.MessageFault)
	// Output:
	// true
	// true
}
