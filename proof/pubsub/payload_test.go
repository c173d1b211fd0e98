package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// payloads are those of a test's messages by id: nothing and emptiness alone, between each other,
// and behind one with content.
var payloads = map[string][]byte{"1": nil, "2": {}, "3": nil, "4": []byte("x"), "5": nil, "6": {}, "7": make([]byte, 100<<10), "8": nil}

func withPayloads() (messages []*message.Message) {
	for n := range len(payloads) {
		id := fmt.Sprint(n + 1)
		messages = append(messages, message.NewMessage(id, payloads[id]))
	}
	return messages
}

// described tells nil and empty apart, which comparisons of bytes do not.
func described(payload []byte) string {
	if payload == nil {
		return "null"
	}
	return fmt.Sprint(len(payload), " bytes")
}

func wantedPayloads() map[string]string {
	wanted := map[string]string{}
	for id, payload := range payloads {
		wanted[id] = described(payload)
	}
	return wanted
}

// seen notes what came.
type seen struct {
	mu sync.Mutex
	by map[string]string
}

func (s *seen) add(msg *message.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]string{}
	}
	s.by[msg.UUID] = described(msg.Payload)
}

func (s *seen) all(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.by) == len(payloads)
	}, patience, tick)
	require.Equal(t, wantedPayloads(), s.by)
	s.by = nil
}

// broker takes messages, or refuses them.
type broker struct {
	seen
	refuses bool
}

func (b *broker) Publish(_ string, messages ...*message.Message) error {
	if b.refuses {
		return postbox.Permanent(errors.New("the broker says no"))
	}
	for _, msg := range messages {
		b.add(msg)
	}
	return nil
}

func (*broker) Close() error { return nil }

// A tombstone deletes a key of a compacted topic, and an empty value does not: what a record
// becomes must not depend on the messages that the forwarder reads with it.
func TestForwarder_G2_null_and_empty_payloads_reach_Kafka_as_they_are(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		to, topic := newKafka(t), "test-"+watermill.NewUUID()
		makeTopic(t, to, topic)
		outbox := publisherFor(t, database, nil)
		for _, msg := range withPayloads()[:2] { // by themselves
			inTx(t, database.DB, outbox, topic, msg)
		}
		inTx(t, database.DB, outbox, topic, withPayloads()[2:]...)
		runForwarder(t, database.Postbox(), to.shared, func(c *forwarder.Config) { c.Classify = kafkabroker.Classify })

		consumer, err := sarama.NewConsumer(to.brokers, kafkabroker.DefaultSubscriberConfig(nil, "g").OverwriteSaramaConfig)
		require.NoError(t, err)
		defer func() { require.NoError(t, consumer.Close()) }()
		records, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
		require.NoError(t, err)
		defer func() { require.NoError(t, records.Close()) }()
		var got seen
		for range payloads {
			select {
			case record := <-records.Messages():
				msg, err := kafkabroker.Marshaler().Unmarshal(record)
				require.NoError(t, err)
				require.Equal(t, described(record.Value), described(msg.Payload))
				got.add(msg)
			case <-time.After(patience):
				require.Fail(t, "records do not come")
			}
		}
		got.all(t)
	})
}

// The way of a message through all that stores it: outbox, with delays and retries, dead letters,
// requeue, history, replay.
func TestForwarder_G2_null_and_empty_payloads_stay_as_they_are(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		operator := operatorOf(t, database)
		to := &broker{refuses: true}
		inTx(t, database.DB, publisherFor(t, database, nil), "orders", withPayloads()...)
		stop := startForwarder(t, database, to)
		letters := lettersOf(t, operator, len(payloads))
		stop()
		requireLetters(t, operator, letters)

		to.refuses = false
		require.NoError(t, storeSettings(t.Context(), operator, admin.Outbox("outbox"), admin.Settings{History: time.Hour}))
		startForwarder(t, database, to)
		requeued, err := operator.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, len(payloads), requeued)
		to.all(t)
		requireHistory(t, operator, admin.Outbox("outbox"))
		replayed, err := operator.Replay(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), All: true}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, len(payloads), replayed.Done)
		to.all(t)
	})
}

// Inboxes and queues.
func TestInbox_G5_null_and_empty_payloads_stay_as_they_are(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		store, err := inboxstore.New(database.Migrate(t).Postbox(), inboxstore.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		operator := operatorOf(t, database)
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "billing", Topic: "orders", History: time.Hour}, nil)
		require.NoError(t, err)

		var handled seen
		for _, msg := range withPayloads() {
			processed, err := inbox.Process(t.Context(), msg, func(msg *message.Message) ([]*message.Message, error) {
				handled.add(msg)
				return nil, nil
			})
			require.NoError(t, err)
			require.True(t, processed)
		}
		handled.all(t)
		requireHistory(t, operator, admin.Inbox("billing"))

		for _, msg := range withPayloads() {
			msg.Metadata.Set("partition_key", "of the letters")
			require.NoError(t, store.Bury(t.Context(), inboxstore.Key{Consumer: "shipping", Topic: "orders", MessageID: msg.UUID}, msg, 1, errors.New("no")))
		}
		requireLetters(t, operator, lettersOf(t, operator, len(payloads)))

		subscriber, err := queue.NewSubscriber(store, queue.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, subscriber.Close()) })
		messages, err := subscriber.Subscribe(t.Context(), "q")
		require.NoError(t, err)
		deferral := middleware.Defer(store, "q")(nil)
		for _, msg := range withPayloads() {
			_, err := deferral(msg)
			require.NoError(t, err)
		}
		for range payloads {
			select {
			case msg := <-messages:
				handled.add(msg)
				msg.Ack()
			case <-time.After(patience):
				require.Fail(t, "messages do not come")
			}
		}
		handled.all(t)
	})
}

func operatorOf(t *testing.T, database *testdb.Database) *admin.Admin {
	t.Helper()
	operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	return operator
}

// startForwarder runs a forwarder that keeps what it has published.
func startForwarder(t *testing.T, database *testdb.Database, to message.Publisher) (stop func()) {
	t.Helper()
	fwd, err := forwarder.New(database.Postbox(), to, forwarder.Config{
		Tuning: postbox.Tuning{PollMax: 50 * time.Millisecond, Lease: 3 * time.Second},
	}, nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- fwd.Run(context.Background()) }()
	stop = sync.OnceFunc(func() {
		_ = fwd.Close()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func lettersOf(t *testing.T, operator *admin.Admin, n int) (letters []admin.DeadLetter) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		letters, _, err = operator.DeadLetters(t.Context(), admin.Filter{})
		require.NoError(t, err)
		return len(letters) == n
	}, patience, tick)
	return letters
}

func requireLetters(t *testing.T, operator *admin.Admin, letters []admin.DeadLetter) {
	t.Helper()
	got := map[string]string{}
	for _, listed := range letters {
		letter, err := operator.DeadLetter(t.Context(), listed.ID)
		require.NoError(t, err)
		require.Equal(t, listed.Size, letter.Size)
		require.GreaterOrEqual(t, letter.Size, len(letter.Payload))
		got[letter.MessageID] = described(letter.Payload)
	}
	require.Equal(t, wantedPayloads(), got)
}

func requireHistory(t *testing.T, operator *admin.Admin, target admin.Target) {
	t.Helper()
	var done []admin.Message
	require.Eventually(t, func() bool {
		var err error
		done, _, err = operator.Messages(t.Context(), admin.Filter{Target: target, Status: admin.Done})
		require.NoError(t, err)
		return len(done) == len(payloads)
	}, patience, tick)
	got := map[string]string{}
	for _, listed := range done {
		msg, err := operator.Message(t.Context(), admin.Filter{Target: target, ID: listed.ID})
		require.NoError(t, err)
		got[msg.MessageID] = described(msg.Payload)
	}
	require.Equal(t, wantedPayloads(), got)
}

// storeSettings stores settings in place of those that are stored.
func storeSettings(ctx context.Context, a *admin.Admin, target admin.Target, settings admin.Settings) error {
	_, err := a.ChangeSettings(ctx, target, func(stored *admin.Settings) error {
		*stored = settings
		return nil
	})
	return err
}
