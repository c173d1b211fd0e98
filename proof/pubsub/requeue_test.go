package pubsub_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

const version = "version" // the metadata by which one of the consumers knows messages

// consumers are two handlers of one topic: billing, which knows its messages by another id and
// within another topic than those of the broker, and shipping, which knows them as they come.
// Billing fails at first.
type consumers struct {
	*testing.T
	database *testdb.Database
	operator *admin.Admin
	topic    string
	broker   message.Publisher
	store    *inboxstore.Store

	mu         sync.Mutex
	failing    bool
	deliveries []string // to shipping: the UUID of each that was acked
}

func consume(t *testing.T, database *testdb.Database, from destination, topic string, change func(billing, shipping *middleware.InboxConfig)) *consumers {
	t.Helper()
	c := &consumers{T: t, database: database.Migrate(t), operator: operatorOf(t, database), topic: topic, broker: from.publisher(t), failing: true}
	database.Exec(t, "CREATE TABLE effects (consumer VARCHAR(50), uuid VARCHAR(200), topic VARCHAR(200))")
	var err error
	c.store, err = inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	billing := middleware.InboxConfig{
		Topic: "logical-" + topic, MessageID: func(msg *message.Message) string { return msg.Metadata.Get(version) }, History: time.Hour,
	}
	var shipping middleware.InboxConfig
	if change != nil {
		change(&billing, &shipping)
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	for name, config := range map[string]middleware.InboxConfig{"billing": billing, "shipping": shipping} {
		inbox, err := middleware.NewInbox(c.store, config, nil)
		require.NoError(t, err)
		router.AddConsumerHandler(name, topic, from.subscriber(t, name), c.handler(name)).AddMiddleware(c.counted(name), inbox.Middleware)
	}
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		_ = router.Close()
		require.NoError(t, <-done)
		require.NoError(t, c.store.Close())
	})
	runForwarder(t, database.Postbox(), c.broker, func(config *forwarder.Config) { config.Classify = from.classify })
	require.Eventually(t, func() bool {
		targets, err := c.operator.Targets(t.Context())
		return err == nil && slices.Contains(targets, admin.Outbox("outbox"))
	}, patience, tick, "the forwarder has its outbox, through which letters are requeued")
	return c
}

func (c *consumers) handler(name string) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		if c.fails(name) {
			return postbox.Permanent(fmt.Errorf("%s does not work yet", name))
		}
		tx, _ := postbox.TxFromContext(msg.Context())
		_, err := tx.ExecContext(msg.Context(), c.database.Bind("INSERT INTO effects VALUES (?, ?, ?)"), name, msg.UUID, message.SubscribeTopicFromCtx(msg.Context()))
		return err
	}
}

func (c *consumers) fails(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failing && name == "billing"
}

func (c *consumers) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = false
}

// counted notes what is delivered to shipping, duplicates too.
func (c *consumers) counted(name string) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			uuid := msg.UUID
			out, err := h(msg)
			if name == "shipping" && err == nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.deliveries = append(c.deliveries, uuid)
			}
			return out, err
		}
	}
}

func (c *consumers) send(uuid string) {
	c.Helper()
	msg := message.NewMessage(uuid, []byte("payload"))
	msg.Metadata.Set(version, "order-1-v1")
	msg.Metadata.Set("partition_key", "order-1")
	require.NoError(c, c.broker.Publish(c.topic, msg)) // an outbox would give it a UUID
}

// letter returns the dead letter of billing, with the effect of shipping.
func (c *consumers) letter() admin.DeadLetter {
	c.Helper()
	letter := lettersOf(c.T, c.operator, 1)[0]
	c.effects("shipping", 1)
	c.delivered(1)
	return letter
}

func (c *consumers) effects(consumer string, n int) {
	c.Helper()
	require.Eventually(c, func() bool {
		return c.database.Count(c.T, "SELECT COUNT(*) FROM effects WHERE consumer = '"+consumer+"' AND topic = '"+c.topic+"'") == n
	}, patience, tick, "%d effects of %s", n, consumer)
}

func (c *consumers) delivered(n int) (last string) {
	c.Helper()
	require.Eventually(c, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.deliveries) == n
	}, patience, tick, "%d deliveries to shipping", n)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deliveries[n-1]
}

// handledAgain is what a message comes to that was published again: billing has it, and shipping
// knows it.
func (c *consumers) handledAgain(uuid string, deliveries int) {
	c.Helper()
	c.effects("billing", 1)
	require.Equal(c, uuid, c.delivered(deliveries))
	c.effects("shipping", 1)
	require.Eventually(c, func() bool { return c.database.Count(c.T, "SELECT COUNT(*) FROM postbox_messages") == 0 }, patience, tick, "all are published")
}

func newTestTopic() string { return "test-" + watermill.NewUUID() }

// eachDestination is each database with channels in memory, and each broker.
func eachDestination(t *testing.T, test func(t *testing.T, database *testdb.Database, to destination, topic string)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) { test(t, database, newGoChannels(), newTestTopic()) })
	t.Run("Kafka", func(t *testing.T) {
		t.Parallel()
		to, topic := newKafka(t), newTestTopic()
		makeTopic(t, to, topic)
		test(t, testdb.SQLite(t), to, topic)
	})
	t.Run("RabbitMQ", func(t *testing.T) {
		t.Parallel()
		test(t, testdb.SQLite(t), newRabbit(t), newTestTopic())
	})
}

// The topic and the id by which a consumer knows a message are neither its address nor what others
// know it by.
func TestRequeue_G4_publishes_a_message_on_its_topic_and_with_its_id(t *testing.T) {
	t.Parallel()
	eachDestination(t, func(t *testing.T, database *testdb.Database, to destination, topic string) {
		c := consume(t, database, to, topic, nil)
		c.send("the-uuid")
		listed := c.letter()
		letter, err := c.operator.DeadLetter(t.Context(), listed.ID)
		require.NoError(t, err)
		require.Equal(t, []string{"logical-" + topic, "order-1-v1", topic, "the-uuid"}, []string{letter.Topic, letter.MessageID, letter.SourceTopic, letter.UUID})
		c.mend()
		require.NoError(t, errorOf(c.operator.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{})))
		c.handledAgain("the-uuid", 2)
		require.Zero(t, c.database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))

		replayed, err := c.operator.Replay(t.Context(), admin.Filter{Target: admin.Inbox("billing"), All: true}, admin.Again{To: admin.Outbox("outbox")})
		require.NoError(t, err)
		require.Equal(t, 1, replayed.Done)
		c.handledAgain("the-uuid", 3)
	})
}

func TestRequeue_G4_edits_and_publishes_a_message_on_its_topic_and_with_its_id(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := consume(t, database, newGoChannels(), newTestTopic(), nil)
		c.send("the-uuid")
		letter := c.letter()
		c.mend()
		editor, err := admin.New(database.Postbox(), admin.Config{AllowEdit: true}, nil)
		require.NoError(t, err)
		require.NoError(t, errorOf(editor.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{Payload: []byte("another one")})))
		c.handledAgain("the-uuid", 2)
	})
}

// A message without a UUID stays without one, but for the name that consumers have given it because
// of that.
func TestRequeue_G4_publishes_a_message_without_a_UUID_by_its_name(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := consume(t, database, newGoChannels(), newTestTopic(), func(billing, shipping *middleware.InboxConfig) {
			billing.MessageID = nil
			billing.WithoutID, shipping.WithoutID = middleware.PayloadHash, middleware.PayloadHash
		})
		c.send("")
		c.letter()
		c.mend()
		requeued, err := c.operator.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, 1, requeued)
		name, err := middleware.PayloadHash(message.NewMessage("", []byte("payload")))
		require.NoError(t, err)
		c.handledAgain(name, 2)
	})
	t.Run("named by one consumer alone", func(t *testing.T) {
		t.Parallel()
		c := consume(t, testdb.SQLite(t), newGoChannels(), newTestTopic(), func(_, shipping *middleware.InboxConfig) { shipping.WithoutID = middleware.PayloadHash })
		c.send("")
		require.NoError(t, errorOf(c.operator.Requeue(t.Context(), admin.Filter{ID: func() int64 { id := c.letter().ID; c.mend(); return id }()}, admin.Again{})))
		c.handledAgain("", 2)
	})
}

// Outside a router nothing says on which topic a message came.
func TestRequeue_asks_for_the_topic_of_a_message_that_came_through_no_router(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := consume(t, database, newGoChannels(), newTestTopic(), nil)
		inbox, err := middleware.NewInbox(c.store, middleware.InboxConfig{Consumer: "billing", Topic: "logical", History: time.Hour}, nil)
		require.NoError(t, err)
		processed, err := inbox.Process(t.Context(), message.NewMessage("1", nil), message.PassthroughHandler)
		require.ErrorContains(t, err, "Outbox")
		require.False(t, processed)
		msg := message.NewMessage("the-uuid", []byte("payload"))
		_, err = inbox.Process(t.Context(), msg, func(*message.Message) ([]*message.Message, error) { return nil, postbox.Permanent(fmt.Errorf("no")) })
		require.NoError(t, err, "it is a dead letter")
		letter := lettersOf(t, c.operator, 1)[0]
		c.mend()

		_, err = c.operator.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{})
		require.ErrorIs(t, err, admin.ErrRefused)
		require.ErrorContains(t, err, "does not say from which topic it came")
		require.ErrorIs(t, err, admin.ErrRefused)
		require.ErrorContains(t, err, "--to-topic")
		n, err := c.operator.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.ErrorIs(t, err, admin.ErrRefused)
		require.ErrorContains(t, err, "does not say from which topic it came")
		require.Zero(t, n)
		require.Zero(t, c.database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
		n, err = c.operator.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{Topic: c.topic})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, "the-uuid", c.delivered(1))
		c.effects("shipping", 1)

		processed, err = inbox.Process(t.Context(), message.NewMessage("kept", nil), func(*message.Message) ([]*message.Message, error) { return nil, nil })
		require.NoError(t, err)
		require.True(t, processed)
		replay := admin.Again{To: admin.Outbox("outbox")}
		_, err = c.operator.Replay(t.Context(), admin.Filter{Target: admin.Inbox("billing"), MessageID: "kept"}, replay)
		require.ErrorIs(t, err, admin.ErrRefused)
		require.ErrorContains(t, err, "does not say from which topic it came")
		replay.Topic = c.topic
		done, err := c.operator.Replay(t.Context(), admin.Filter{Target: admin.Inbox("billing"), MessageID: "kept"}, replay)
		require.NoError(t, err)
		require.Equal(t, 1, done.Done)
		require.Equal(t, "kept", c.delivered(2))
	})
}

// Letters outlive claims. Once these are gone, nothing tells other consumers that they have handled
// the message.
func TestRequeue_G4_of_a_letter_that_is_older_than_the_claims_asks_first(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := consume(t, database, newGoChannels(), newTestTopic(), nil)
		c.send("the-uuid")
		letter := c.letter()
		c.mend()
		c.database.Exec(t, "DELETE FROM postbox_claims") // as the cleanup does after a week

		_, err := c.operator.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{})
		require.ErrorContains(t, err, "older than the claims")
		require.ErrorIs(t, err, admin.ErrRefused)
		require.ErrorContains(t, err, "--older-than-claims")
		n, err := c.operator.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.ErrorContains(t, err, "older than the claims")
		require.Zero(t, n)
		require.Len(t, lettersOf(t, c.operator, 1), 1)
		require.Zero(t, c.database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
		require.Zero(t, c.database.Count(t, "SELECT COUNT(*) FROM effects WHERE consumer = 'billing'"))

		require.NoError(t, errorOf(c.operator.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{OlderThanClaims: true})))
		c.effects("billing", 1)
		c.effects("shipping", 2) // as was said
	})
}

// The claims of other consumers are as old as the first delivery. A letter that was requeued and
// has died again is no younger.
func TestRequeue_G4_of_a_letter_that_died_twice_counts_from_its_first_death(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := consume(t, database, newGoChannels(), newTestTopic(), nil)
		c.send("the-uuid")
		first := c.letter()
		passes := func(d time.Duration) {
			c.database.Exec(t, "UPDATE postbox_claims SET claimed_at = claimed_at - ?", d.Microseconds())
			c.database.Exec(t, "UPDATE postbox_failures SET failed_at = failed_at - ?", d.Microseconds())
			c.database.Exec(t, "UPDATE postbox_dead_letters SET died_at = died_at - ?", d.Microseconds())
		}
		passes(4 * 24 * time.Hour)
		require.NoError(t, errorOf(c.operator.Requeue(t.Context(), admin.Filter{ID: first.ID}, admin.Again{})))
		var second admin.DeadLetter
		require.Eventually(t, func() bool {
			letters, _, err := c.operator.DeadLetters(t.Context(), admin.Filter{})
			if err == nil && len(letters) == 1 {
				second = letters[0]
			}
			return second.ID > first.ID
		}, patience, tick, "it dies again")
		c.mend()
		passes(4 * 24 * time.Hour) // the cleanup has deleted the claim of shipping, and not that of billing
		_, err := c.operator.Requeue(t.Context(), admin.Filter{ID: second.ID}, admin.Again{})
		require.ErrorContains(t, err, "older than the claims")
		require.Len(t, lettersOf(t, c.operator, 1), 1)
	})
}

// Its own claim is as old as its death, and those of other consumers are as old as its first
// failure, however many came after that.
func TestRequeue_G4_of_a_letter_counts_from_the_first_of_many_failures(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := consume(t, database, newGoChannels(), newTestTopic(), nil)
		c.send("the-uuid")
		letter := c.letter()
		c.database.Exec(t, "UPDATE postbox_failures SET failed_at = failed_at - ?", (3 * 24 * time.Hour).Microseconds())
		for range 101 {
			c.database.Exec(t, "INSERT INTO postbox_failures (subject, attempt, failed_at, error, process) SELECT subject, 1, died_at, '', '' FROM postbox_dead_letters")
		}
		_, err := c.operator.Requeue(t.Context(), admin.Filter{ID: letter.ID}, admin.Again{})
		require.ErrorContains(t, err, "older than the claims")
		require.Len(t, lettersOf(t, c.operator, 1), 1)
	})
}

// errorOf is the error of an action, whatever it has changed.
func errorOf(_ int, err error) error { return err }
