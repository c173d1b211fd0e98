package pubsub_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// Watermill's own suite, which every Pub/Sub should pass, over outbox, forwarder and a real
// destination: the outbox must not be noticed.

// With exactly-once delivery a duplicate fails the suite. Neither the outbox nor any broker
// promises that: it is that each message goes out once as long as nothing fails. The suite then
// leaves two tests out, so it runs both ways.
//
// It is short: the run on RabbitMQ has the full size.
func TestPubSub_G2_from_every_database(t *testing.T) {
	t.Parallel()
	for _, exactlyOnce := range []bool{false, true} {
		t.Run(fmt.Sprintf("exactly once is %t", exactlyOnce), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				testPubSub(t, chain{database: database.Migrate(t), destination: newGoChannels()}, tests.Features{
					ExactlyOnceDelivery:              exactlyOnce,
					ForceShort:                       true,
					Persistent:                       true,
					NewSubscriberReceivesOldMessages: true,
					RequireSingleInstance:            true,
				})
			})
		})
	}
}

// The features are those of Watermill's own run of the suite on RabbitMQ; the order of a key
// survives the outbox. Also covers G2.
func TestPubSub_G3_from_outbox_to_RabbitMQ(t *testing.T) {
	t.Parallel()
	testPubSub(t, chain{database: testdb.Postgres(t).Migrate(t), destination: newRabbit(t)}, tests.Features{
		ConsumerGroups:                      true,
		GuaranteedOrder:                     true,
		GuaranteedOrderWithSingleSubscriber: true,
		Persistent:                          true,
	})
}

func testPubSub(t *testing.T, c chain, features tests.Features) {
	t.Helper()
	tests.TestPubSub(t, features,
		func(t *testing.T) (message.Publisher, message.Subscriber) {
			t.Helper()
			return c.pair(t, "test")
		},
		c.pair)
}

// destination is what a forwarder publishes to, and where the subscribers are.
type destination interface {
	publisher(t *testing.T) message.Publisher
	classify(err error) postbox.ErrorClass
	subscriber(t *testing.T, group string) message.Subscriber
}

// chain is a Pub/Sub made of an outbox, forwarders and a destination.
type chain struct {
	database    *testdb.Database
	destination destination
	log         *theLog // nil: forwarders poll
}

var outboxes atomic.Int64

// pair is what the suite asks for, many times a test. Each publisher has an outbox of its own, so
// that the ten thousand messages of one test do not stand before the ten of another.
func (c chain) pair(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	outbox := fmt.Sprintf("o%d", outboxes.Add(1))
	publisher := publisherFor(t, c.database, func(config *forwarder.PublisherConfig) {
		config.Outbox, config.AllowAutocommit = outbox, true
		// The suite checks the order of messages with equal payloads, so that is what a key means
		// here.
		config.OrderingKey = func(_ string, msg *message.Message) string { return string(msg.Payload) }
	})
	start := sync.OnceFunc(func() {
		runForwarder(t, c.log.measured(c.database), c.destination.publisher(t), func(config *forwarder.Config) {
			config.Outbox, config.BatchSize, config.Classify = outbox, 100, c.destination.classify
			config.PollMax = time.Second // of many outboxes most are idle
			c.log.follow(config)
		})
	})
	return forwardedPublisher{publisher, start}, c.destination.subscriber(t, group)
}

// forwardedPublisher starts the forwarder of its outbox with the first message. That one runs to
// the end of the test: Close of the publisher, which the suite calls early and twice, is none of
// its business.
type forwardedPublisher struct {
	*forwarder.Publisher
	start func()
}

func (p forwardedPublisher) Publish(topic string, messages ...*message.Message) error {
	p.start()
	return p.Publisher.Publish(topic, messages...)
}

// goChannels is one GoChannel a test, since the suite runs its tests side by side. Messages outlive
// publishers and subscribers, since it is shared within a test. It gives each subscription every
// message that the topic ever had, in no order, so it has neither consumer groups nor order.
type goChannels struct {
	mu     sync.Mutex
	byTest map[string]*gochannel.GoChannel
}

func newGoChannels() *goChannels { return &goChannels{byTest: map[string]*gochannel.GoChannel{}} }

func (g *goChannels) of(t *testing.T) *gochannel.GoChannel {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	channel := g.byTest[t.Name()]
	if channel == nil {
		channel = gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
		g.byTest[t.Name()] = channel
		t.Cleanup(func() { _ = channel.Close() })
	}
	return channel
}

func (g *goChannels) publisher(t *testing.T) message.Publisher { t.Helper(); return g.of(t) }

func (g *goChannels) classify(err error) postbox.ErrorClass { return postbox.ClassifyNetwork(err) }

func (g *goChannels) subscriber(t *testing.T, _ string) message.Subscriber {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return &leavingSubscriber{channel: g.of(t), ctx: ctx, cancel: cancel}
}

// leavingSubscriber closes its subscriptions and not the GoChannel, which others use.
type leavingSubscriber struct {
	channel       *gochannel.GoChannel
	ctx           context.Context //nolint:containedctx // the life of the subscriptions, which Close ends
	cancel        context.CancelFunc
	subscriptions sync.WaitGroup
}

func (s *leavingSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	messages, err := s.channel.Subscribe(ctx, topic)
	if err != nil {
		cancel()
		return nil, err
	}
	out := make(chan *message.Message)
	s.subscriptions.Go(func() {
		defer stop()
		defer cancel()
		defer close(out)
		for msg := range messages {
			select {
			case out <- msg:
			case <-ctx.Done():
			}
		}
	})
	return out, nil
}

// Close returns when the channels of all subscriptions are closed, which the suite looks at.
func (s *leavingSubscriber) Close() error {
	s.cancel()
	s.subscriptions.Wait()
	return nil
}

// rabbit is a real RabbitMQ.
type rabbit struct {
	uri    string
	shared message.Publisher
	mu     sync.Mutex
	queues map[string]string // and the exchange of each
}

func newRabbit(t *testing.T) *rabbit {
	t.Helper()
	uri := testservice.Address(t, testservice.AMQPVariable)
	publisher, err := amqpbroker.NewPublisher(amqpbroker.DefaultPublisherConfig(uri), nil)
	require.NoError(t, err)
	r := &rabbit{uri: uri, shared: publisher, queues: map[string]string{}}
	t.Cleanup(func() {
		require.NoError(t, publisher.Close())
		r.clearAway(t)
	})
	return r
}

func (r *rabbit) publisher(*testing.T) message.Publisher { return r.shared }

func (r *rabbit) classify(err error) postbox.ErrorClass { return amqpbroker.Classify(err) }

func (r *rabbit) subscriber(t *testing.T, group string) message.Subscriber {
	t.Helper()
	config := amqpbroker.DefaultSubscriberConfig(r.uri, group)
	name := config.Queue.GenerateName
	config.Queue.GenerateName = func(topic string) string {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queues[name(topic)] = topic
		return name(topic)
	}
	subscriber, err := amqp.NewSubscriber(config, watermill.NopLogger{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) }) // the suite leaves some open
	return subscriber
}

func (r *rabbit) clearAway(t *testing.T) {
	t.Helper()
	conn, err := amqp091.Dial(r.uri)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	channel, err := conn.Channel()
	require.NoError(t, err)
	for queue, exchange := range r.queues {
		_, err := channel.QueueDelete(queue, false, false, false)
		require.NoError(t, err)
		require.NoError(t, channel.ExchangeDelete(exchange, false, false))
	}
}
