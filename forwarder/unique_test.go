package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/unique"
)

func skipping(uuid, unique string) *message.Message {
	return postbox.SkipIfWaiting(newMessage(uuid, ""), unique)
}

func replacing(uuid, unique string) *message.Message {
	return postbox.ReplaceWaiting(newMessage(uuid, ""), unique)
}

// publishUnique publishes messages in one call, and returns the UUIDs of those that were left out.
func publishUnique(t *testing.T, database *testdb.Database, publisher message.Publisher, topic string, messages ...*message.Message) (skipped []string) {
	t.Helper()
	skipped, err := tryUnique(t.Context(), database, publisher, topic, messages...)
	require.NoError(t, err)
	return skipped
}

func tryUnique(ctx context.Context, database *testdb.Database, publisher message.Publisher, topic string, messages ...*message.Message) (skipped []string, err error) {
	err = postbox.InTx(ctx, database.DB, func(ctx context.Context, _ *sql.Tx) error {
		for _, msg := range messages {
			msg.SetContext(forwarder.WhenSkipped(ctx, func(msg *message.Message) { skipped = append(skipped, msg.UUID) }))
		}
		return publisher.Publish(topic, messages...)
	})
	return skipped, err
}

// stored returns the UUIDs of the messages of a topic, in the order in which they were stored.
func stored(t *testing.T, database *testdb.Database, topic string) []string {
	t.Helper()
	rows, err := database.DB.QueryContext(t.Context(), database.Bind("SELECT message_id FROM postbox_messages WHERE topic = ? ORDER BY id"), topic)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	ids := []string{}
	for rows.Next() {
		var id []byte
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, string(id))
	}
	require.NoError(t, rows.Err())
	return ids
}

func TestPublisher_skips_or_replaces_a_message_whose_unique_key_waits(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		publish := func(topic string, messages ...*message.Message) []string {
			return publishUnique(t, database, publisher, topic, messages...)
		}

		require.Empty(t, publish("skip", skipping("1", "a"), skipping("2", "b")))
		require.Equal(t, []string{"3"}, publish("skip", newMessage("before", ""), skipping("3", "a"), newMessage("after", "")))
		require.Equal(t, []string{"1", "2", "before", "after"}, stored(t, database, "skip"))

		require.Empty(t, publish("replace", skipping("1", "a"), replacing("2", "a"), newMessage("3", ""), replacing("4", "b")), "the first one was of this call")
		require.Empty(t, publish("replace", replacing("5", "b"), newMessage("6", ""), replacing("7", "a"), replacing("8", "new")))
		require.Equal(t, []string{"3", "5", "6", "7", "8"}, stored(t, database, "replace"), "a message that replaces another one is the last")

		other := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.Outbox = "other" })
		require.Empty(t, publishUnique(t, database, other, "skip", skipping("5", "a")), "another outbox has its own keys")

		msg := skipping("6", "metadata")
		publish("metadata", msg)
		require.Equal(t, "metadata", msg.Metadata.Get(unique.Key), "the message of the caller is left alone")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'metadata' AND ordering_key = ? AND metadata = ?",
			[]byte("metadata"), []byte(`{"partition_key":"metadata"}`)), "the unique key orders messages that have no other key")
	})
}

// A message waits in each state that it can have, also in the table of those that wait for a time
// on PostgreSQL.
func TestPublisher_G2_replaces_a_message_that_waits_for_its_time_or_another_attempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		to := &broker{fail: func(string, *message.Message) error { return postbox.RetryAfter(errBroker, time.Hour) }}
		log := watermill.NewCaptureLogger()
		fwd := forwarderWithLog(t, database, to, func(c *forwarder.Config) {
			c.Classify = func(error) postbox.ErrorClass { return postbox.MessageFault }
		}, log)
		run(t, fwd)

		// It waits for its time.
		later := skipping("later", "delayed")
		delay.Message(later, delay.For(time.Hour))
		require.Empty(t, publishUnique(t, database, publisher, "delayed", later))
		require.Equal(t, []string{"2"}, publishUnique(t, database, publisher, "delayed", skipping("2", "delayed")))
		latest := replacing("latest", "delayed")
		delay.Message(latest, delay.For(2*time.Hour))
		publishUnique(t, database, publisher, "delayed", latest)
		require.Equal(t, []string{"latest"}, stored(t, database, "delayed"))

		// It waits for another attempt.
		publishUnique(t, database, publisher, "failing", skipping("failed", "failing"))
		retrying := func(n int) func() bool {
			return func() bool {
				return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'failing' AND state = 2 AND attempts = 1") == n
			}
		}
		eventually(t, retrying(1), "the message failed")
		require.Equal(t, []string{"2"}, publishUnique(t, database, publisher, "failing", skipping("2", "failing")))
		publishUnique(t, database, publisher, "failing", newMessage("behind", "failing"))
		publishUnique(t, database, publisher, "failing", replacing("3", "failing"))
		publishUnique(t, database, publisher, "failing", replacing("4", "failing"))
		require.Equal(t, []string{"failed", "behind", "4"}, stored(t, database, "failing"), "the failed message keeps its place, and so does the one behind it")
		require.True(t, retrying(1)())

		require.Empty(t, log.Captured()[watermill.ErrorLogLevel])
	})
}

// A forwarder that has a message in flight publishes it although it was replaced, and then the new
// one.
func TestForwarder_G3_publishes_a_replacement_after_the_message_in_flight(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		for name, failure := range map[string]error{"done": nil, "failed": errors.Join(errBroker), "dead": postbox.Permanent(errBroker)} {
			began, goOn := make(chan struct{}), make(chan struct{})
			to := &broker{}
			to.fail = func(topic string, msg *message.Message) error {
				if topic != name || msg.UUID != name+" old" {
					return nil
				}
				close(began)
				<-goOn
				return failure
			}
			log := watermill.NewCaptureLogger()
			fwd := forwarderWithLog(t, database, to, func(c *forwarder.Config) {
				c.Classify = func(error) postbox.ErrorClass { return postbox.MessageFault }
			}, log)
			done := make(chan error, 1)
			go func() { done <- fwd.Run(context.Background()) }()

			publishUnique(t, database, publisher, name, replacing(name+" old", "key"))
			<-began
			publishUnique(t, database, publisher, name, replacing(name+" new", "key"))
			require.Equal(t, []string{name + " new"}, stored(t, database, name))
			close(goOn)
			eventually(t, func() bool { return pending(t, database) == 0 }, "everything is published")
			if failure == nil {
				require.Equal(t, []string{name + " old", name + " new"}, to.ids())
			} else {
				require.Equal(t, []string{name + " new"}, to.ids(), "the old message is not tried again")
			}
			require.NoError(t, fwd.Close())
			require.NoError(t, <-done)
			require.Zero(t, dead(t, database), "a message that was replaced is no dead letter")
			require.Empty(t, log.Captured()[watermill.ErrorLogLevel])
		}
	})
}

// A publisher that only executes, and hears no number of rows, stores the same.
func TestPublisher_of_unique_keys_needs_no_results(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		inTx(t, database.DB, publisherFor(t, database, nil), "warm up", newMessage("0", "")) // registers the outbox
		publisher, reported := publisherFor(t, database, nil), 0
		for i, exec := range []func(tx *sql.Tx) postbox.Executor{
			func(tx *sql.Tx) postbox.Executor { return postbox.ExecFunc(tx.ExecContext) },
			func(tx *sql.Tx) postbox.Executor {
				return postbox.ExecFunc(func(ctx context.Context, query string, args ...any) (struct{}, error) {
					_, err := tx.ExecContext(ctx, query, args...)
					return struct{}{}, err
				})
			},
		} {
			topic := string(rune('a' + i))
			tx, err := database.Open(t).BeginTx(t.Context(), nil)
			require.NoError(t, err)
			through := publisher.Bind(exec(tx))
			for _, msg := range []*message.Message{skipping("1", "a"), skipping("2", "a"), skipping("3", "b"), replacing("4", "b")} {
				msg.SetContext(forwarder.WhenSkipped(t.Context(), func(*message.Message) { reported++ }))
				require.NoError(t, through.Publish(topic, msg))
			}
			require.NoError(t, tx.Commit())
			require.Equal(t, []string{"1", "4"}, stored(t, database, topic))
		}
		require.Equal(t, 1, reported, "a result tells whether a message was left out")
	})
}

func TestPublisher_refuses_a_unique_key_that_says_nothing(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	database.Migrate(t)
	publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.AllowAutocommit = true })
	half := newMessage("1", "")
	half.Metadata.Set(unique.Key, "key")
	for want, msg := range map[string]*message.Message{
		"the unique key is empty":               skipping("1", ""),
		"postbox_unique_mode is neither":        half,
		"the unique key has 65536 bytes, the l": replacing("1", string(make([]byte, 65_536))),
	} {
		err := publisher.Publish("topic", msg)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, postbox.ErrPermanent)
	}
	require.Zero(t, pending(t, database))
}
