package queue_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Watermill's own suite, which every Pub/Sub should pass, over Defer and Subscriber. A topic has a
// queue for each consumer group, and a message goes into all of them.

// With exactly-once delivery a duplicate fails the suite, which then leaves two tests out, so it
// runs both ways. The suite checks the order of messages with equal payloads, so that is what a key
// means here.
//
// The sizes are short, since the full ones take minutes with the race detector. Most messages of
// the suite have the same payload, so in transactions each of them has a commit of its own. The
// outbox has a run of full size, in proof/pubsub.
//
// SQLite has one transaction that writes at a time. So that of a message which waits for its reader
// keeps out the other topics, and the suite, which reads one topic after the other, waits for ever.
// Also covers G5, F1 and F2.
func TestPubSub_G3_queues_pass_the_suite_of_Watermill(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		exactlyOnce bool
		config      func(*queue.Config)
	}{
		"at least once":                     {},
		"exactly once":                      {exactlyOnce: true},
		"exactly once, in transactions":     {exactlyOnce: true, config: inboxtest.Transactional},
		"at least once, many a transaction": {config: micro(20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				if test.config != nil && database.Dialect == postbox.SQLite {
					return
				}
				q := newQueuesPubSub(t, database, test.config)
				q.key = func(msg *message.Message) string { return string(msg.Payload) }
				q.test(t, tests.Features{
					ConsumerGroups:      true,
					ExactlyOnceDelivery: test.exactlyOnce,
					GuaranteedOrder:     true,
					Persistent:          true,
					ForceShort:          true,
				}, q.publisher)
			})
		})
	}
}

// The chain as users have it: a broker that delivers everything twice, the middleware that stores
// and acks, the queue. A GoChannel promises no order, so there is none to keep, and messages
// without a key are in all lanes. Also covers F6.
func TestPubSub_G5_queues_pass_the_suite_of_Watermill_behind_a_broker_that_duplicates(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		q := newQueuesPubSub(t, database, nil)
		q.broker = gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
		t.Cleanup(func() {
			require.NoError(t, q.broker.Close())
			q.deferring.Wait()
		})
		q.test(t, tests.Features{
			ConsumerGroups:      true,
			ExactlyOnceDelivery: true,
			Persistent:          true,
			ForceShort:          true, // a persistent GoChannel keeps and copies all that it ever had
		}, duplicator{q.broker})
	})
}

// queuesPubSub is a Pub/Sub made of queues.
type queuesPubSub struct {
	database *testdb.Database
	store    *inboxstore.Store
	config   queue.Config
	key      func(*message.Message) string

	publisher message.Publisher
	broker    *gochannel.GoChannel // nil: the publisher stores by itself
	deferring sync.WaitGroup

	mu     sync.Mutex
	groups map[string][]string // by topic
}

func newQueuesPubSub(t *testing.T, database *testdb.Database, change func(*queue.Config)) *queuesPubSub {
	t.Helper()
	q := &queuesPubSub{
		database: database.Migrate(t), config: inboxtest.Quick(change),
		store:  inboxtest.StoreFor(t, database, database.DB, nil),
		key:    func(*message.Message) string { return "" },
		groups: map[string][]string{},
	}
	q.config.Retry = postbox.RetryProfile{Attempts: -1, Base: time.Millisecond, Cap: time.Millisecond} // the suite nacks a lot
	q.publisher = storingPublisher{q}
	return q
}

func (q *queuesPubSub) test(t *testing.T, features tests.Features, publisher message.Publisher) {
	t.Helper()
	group := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()
		// Handlers that the suite leaves without an ack end soon.
		store := inboxtest.StoreFor(t, q.database, q.database.DB, func(c *inboxstore.Config) { c.CloseTimeout = 300 * time.Millisecond })
		subscriber, err := queue.NewSubscriber(store, q.config, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, subscriber.Close()) }) // the suite leaves some open
		return keptOpen{publisher}, groupSubscriber{subscriber, q, group}
	}
	tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()
		return group(t, "test")
	}, group)
}

func queueOf(topic, group string) string { return topic + " of " + group }

// register makes sure that the group gets what is published to the topic.
func (q *queuesPubSub) register(topic, group string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, known := range q.groups[topic] {
		if known == group {
			return nil
		}
	}
	q.groups[topic] = append(q.groups[topic], group)
	if q.broker == nil {
		return nil
	}
	delivered, err := q.broker.Subscribe(context.Background(), topic)
	if err != nil {
		return err
	}
	handle := middleware.Defer(q.store, queueOf(topic, group))(message.PassthroughHandler)
	q.deferring.Go(func() {
		for msg := range delivered {
			q.deferring.Go(func() {
				if _, err := handle(msg); err != nil {
					msg.Nack()
					return
				}
				msg.Ack()
			})
		}
	})
	return nil
}

func (q *queuesPubSub) groupsOf(topic string) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.groups[topic]
}

// storingPublisher stores messages in the queue of each group.
type storingPublisher struct{ *queuesPubSub }

func (p storingPublisher) Publish(topic string, messages ...*message.Message) error {
	for _, group := range p.groupsOf(topic) {
		for _, msg := range messages {
			stored := msg.Copy()
			if key := p.key(msg); key != "" {
				stored.Metadata.Set(postbox.MetadataOrderingKey, key)
			}
			key := inboxstore.Key{Consumer: group, Topic: topic, MessageID: msg.UUID}
			if _, err := p.store.Defer(msg.Context(), queueOf(topic, group), key, stored); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p storingPublisher) Close() error { return nil }

// duplicator publishes everything twice.
type duplicator struct{ message.Publisher }

func (d duplicator) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if err := d.Publisher.Publish(topic, msg, msg); err != nil {
			return err
		}
	}
	return nil
}

// keptOpen is closed by the suite, early and twice, and serves others too.
type keptOpen struct{ message.Publisher }

func (keptOpen) Close() error { return nil }

// groupSubscriber subscribes to a group's queue of a topic.
type groupSubscriber struct {
	*queue.Subscriber
	queues *queuesPubSub
	group  string
}

func (s groupSubscriber) SubscribeInitialize(topic string) error {
	if err := s.queues.register(topic, s.group); err != nil {
		return err
	}
	return s.Subscriber.SubscribeInitialize(queueOf(topic, s.group))
}

func (s groupSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.queues.register(topic, s.group); err != nil {
		return nil, err
	}
	return s.Subscriber.Subscribe(ctx, queueOf(topic, s.group))
}
