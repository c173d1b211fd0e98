package amqpbroker_test

import (
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"

	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

const nowhere = "amqp://guest:secret@127.0.0.1:1/" //nolint:gosec // no server listens on this port

func TestConfigs(t *testing.T) {
	t.Parallel()
	require.NoError(t, amqpbroker.DefaultPublisherConfig(nowhere).ValidatePublisher())
	require.NoError(t, amqpbroker.DefaultSubscriberConfig(nowhere, group).ValidateSubscriber())
	require.NoError(t, amqpbroker.DefaultQueueConfig(nowhere).ValidatePublisher())
	require.NoError(t, amqpbroker.DefaultQueueConfig(nowhere).ValidateSubscriber())

	for name, config := range map[string]amqp.Config{
		"publisher":  amqpbroker.DefaultPublisherConfig(nowhere),
		"subscriber": amqpbroker.DefaultSubscriberConfig(nowhere, group),
		"queue":      amqpbroker.DefaultQueueConfig(nowhere),
	} {
		require.True(t, config.Publish.ConfirmDelivery, name)
		require.True(t, config.Publish.Mandatory, name)
		require.False(t, config.Publish.Transactional, name)
		require.Zero(t, config.Publish.ChannelPoolSize, name)
		require.False(t, config.Consume.NoRequeueOnNack, name)
		require.Equal(t, 1, config.Consume.Qos.PrefetchCount, name)
		require.True(t, config.Queue.Durable, name)
		require.IsType(t, amqpbroker.Marshaler{}, config.Marshaler, name)
	}
	require.Equal(t, "orders_billing", amqpbroker.DefaultSubscriberConfig(nowhere, "billing").Queue.GenerateName("orders"))
	require.True(t, amqpbroker.DefaultPublisherConfig(nowhere).Exchange.Durable)
	require.Equal(t, amqp091.Table{"x-single-active-consumer": true}, amqpbroker.DefaultSubscriberConfig(nowhere, group).Queue.Arguments)
	require.Nil(t, amqpbroker.DefaultQueueConfig(nowhere).Queue.Arguments)
}

func TestNewPublisherRefusesWhatLosesMessages(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*amqp.Config){
		"ConfirmDelivery": func(c *amqp.Config) { c.Publish.ConfirmDelivery = false },
		"Transactional":   func(c *amqp.Config) { c.Publish.Transactional = true },
		"Immediate":       func(c *amqp.Config) { c.Publish.Immediate = true },
		"ChannelPoolSize": func(c *amqp.Config) { c.Publish.ChannelPoolSize = 1 },
		"TopologyBuilder": func(c *amqp.Config) { c.TopologyBuilder = nil },
		"Marshaler":       func(c *amqp.Config) { c.Marshaler = nil },
		"AmqpURI":         func(c *amqp.Config) { c.Connection.AmqpURI = "amqp://guest:secret@host:not-a-port/" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := amqpbroker.DefaultPublisherConfig(nowhere)
			change(&config)
			_, err := amqpbroker.NewPublisher(config, nil)
			require.ErrorContains(t, err, name)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}
