package forwarder_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestPublisher_G1_message_exists_if_and_only_if_the_transaction_committed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "CREATE TABLE business (id INTEGER)")
		publisher := publisherFor(t, database, nil)
		for i, fail := range []bool{false, true, false, true} {
			err := postbox.InTx(t.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, database.Bind("INSERT INTO business VALUES (?)"), i)
				require.NoError(t, err)
				msg := newMessage(fmt.Sprint(i), "")
				msg.SetContext(ctx)
				require.NoError(t, publisher.Publish("topic", msg))
				if fail {
					return errBroker
				}
				return nil
			})
			require.Equal(t, fail, err != nil)
		}
		require.PanicsWithValue(t, "oh", func() {
			_ = postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
				msg := newMessage("panic", "")
				msg.SetContext(ctx)
				require.NoError(t, publisher.Publish("topic", msg))
				panic("oh")
			})
		})
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM business"))
		require.Equal(t, 2, pending(t, database))
	})
}

func TestPublisher_G10_one_connection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.DB.SetMaxOpenConns(1)
		publisher := publisherFor(t, database, nil)
		for i := range 5 {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprint(i), "key"))
		}
		require.Equal(t, 5, pending(t, database))
	})
}

// The first message ever of an outbox is in a transaction that stays open.
func TestPublisher_first_publication_blocks_no_other_transaction(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.DB.SetMaxOpenConns(0)
		open, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = open.Rollback() }()
		require.NoError(t, publisherFor(t, database, nil).Bind(open).Publish("topic", newMessage("first", "")))

		other := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.AllowAutocommit = true })
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		second := newMessage("second", "")
		second.SetContext(ctx)
		require.NoError(t, other.Publish("topic", second), "it does not wait for the transaction")
		require.NoError(t, open.Rollback())
		require.Equal(t, 1, pending(t, database))
	})
}

func TestPublisher_without_a_transaction_is_refused_unless_autocommit_is_allowed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		err := publisherFor(t, database, nil).Publish("topic", newMessage("1", ""))
		require.ErrorIs(t, err, postbox.ErrNoTransaction)
		require.ErrorContains(t, err, "postbox.InTx")

		allowed := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.AllowAutocommit = true })
		require.NoError(t, allowed.Publish("topic", newMessage("1", ""), newMessage("2", "")))
		require.Equal(t, 2, pending(t, database))
	})
}

func TestPublisher_takes_a_transaction_of_another_handle(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		other := database.Open(t)
		for i := range 20 { // its statement is prepared meanwhile, on its own handle
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprint("own ", i), ""))
			inTx(t, other, publisher, "topic", newMessage(fmt.Sprint("other ", i), ""))
		}
		require.Equal(t, 40, pending(t, database))
	})
}

// The number of its outbox is that of another one there.
func TestPublisher_G1_refuses_a_transaction_of_another_database(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *testdb.Database{"sqlite": testdb.SQLite, "postgres-pq": testdb.Postgres, "mariadb": testdb.MySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orders, billing, bare := open(t).Migrate(t), open(t).Migrate(t), open(t)
			for _, database := range []*testdb.Database{orders, billing} { // the outboxes have the same name and the same number
				inTx(t, database.DB, publisherFor(t, database, nil), "topic", newMessage("1", ""))
			}
			publisher := publisherFor(t, orders, nil)
			err := postbox.InTx(t.Context(), billing.DB, func(ctx context.Context, tx *sql.Tx) error {
				msg := newMessage("2", "")
				msg.SetContext(ctx)
				require.ErrorContains(t, publisher.Publish("topic", msg), "not in the same database", "at once, by the context")
				require.ErrorContains(t, publisher.Bind(tx).Publish("topic", newMessage("2", "")), "not in the same database")
				return nil
			})
			require.NoError(t, err)
			inTx(t, orders.Open(t), publisher, "topic", newMessage("3", ""))
			err = postbox.InTx(t.Context(), bare.DB, func(_ context.Context, tx *sql.Tx) error {
				return publisher.Bind(tx).Publish("topic", newMessage("4", ""))
			})
			require.ErrorContains(t, err, "not in the same database", "no tables are there")
			require.Equal(t, 1, pending(t, billing))
			require.Equal(t, 2, pending(t, orders))

			unregistered := publisherFor(t, open(t).Migrate(t), nil)
			for range 2 {
				err = postbox.InTx(t.Context(), billing.DB, func(_ context.Context, tx *sql.Tx) error {
					return unregistered.Bind(tx).Publish("topic", newMessage("5", ""))
				})
				require.ErrorContains(t, err, "not in the same database", "its own outbox is not registered yet")
			}
			require.Equal(t, 1, pending(t, billing))
		})
	}
}

func TestPublisher_bound_to_a_transaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		bound := publisher.Bind(tx)
		require.NoError(t, bound.Publish("topic", newMessage("1", "")))
		require.NoError(t, bound.Close())
		require.NoError(t, bound.Publish("topic", newMessage("2", "")))
		require.NoError(t, tx.Commit())
		publisher.Announce()
		require.Equal(t, 2, pending(t, database))
	})
}

// The first transaction ever on an outbox publishes through several wrappers of itself, and rolls
// back. It has registered the outbox, where the publisher found no connection to do that on. Also
// covers G2.
func TestPublisher_G1_forgets_an_outbox_that_a_rolled_back_transaction_registered(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.DB.SetMaxOpenConns(1)
		publisher := publisherFor(t, database, nil)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, publisher.Bind(&struct{ *sql.Tx }{tx}).Publish("topic", newMessage("rolled back", "")))
			msg := newMessage("rolled back", "")
			msg.SetContext(postbox.ContextWithTx(t.Context(), tx))
			require.NoError(t, publisher.Publish("topic", msg))
		}
		require.NoError(t, tx.Rollback())
		another := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.Outbox = "another" }) // SQLite uses an id again
		inTx(t, database.DB, another, "topic", newMessage("another", ""))

		for _, id := range []string{"1", "2", "3"} {
			inTx(t, database.DB, publisher, "topic", newMessage(id, "key"))
		}
		to := &broker{}
		run(t, forwarderFor(t, database, to, nil))
		eventually(t, func() bool { return len(to.ids()) == 3 }, "all are published")
		require.Equal(t, []string{"1", "2", "3"}, to.ids())
	})
}

func TestPublisher_with_the_CQRS_event_bus(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	bus, err := cqrs.NewEventBusWithConfig(publisherFor(t, database, nil), cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "events", nil },
		Marshaler:            cqrs.JSONMarshaler{},
	})
	require.NoError(t, err)
	type orderPlaced struct{ ID string }
	require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
		return bus.Publish(ctx, orderPlaced{ID: "1"})
	}))
	require.ErrorIs(t, bus.Publish(t.Context(), orderPlaced{ID: "2"}), postbox.ErrNoTransaction)
	require.Equal(t, 1, pending(t, database))
}

func TestPublisher_large_batches_are_split(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		messages := make([]*message.Message, 22_000) // more parameters than any database takes
		for i := range messages {
			messages[i] = newMessage(fmt.Sprintf("%06d", i), "key")
		}
		inTx(t, database.DB, publisherFor(t, database, nil), "topic", messages...)
		require.Equal(t, len(messages), pending(t, database))
	})
}

func TestPublisher_any_message_survives(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		want := map[string]*message.Message{}
		for name, metadata := range map[string]message.Metadata{
			"nil": nil, "empty": {}, "plain": {"a": "b", "": "", "ü": "\u2028"},
			"nul": {"k\x00": "v\x00"}, "bytes": {"\xff\xfe": "\x80", "ok": "ok"},
		} {
			msg := message.NewMessage(strings.Repeat(name, 30)+"\x00\xff", []byte{0, 255, 1})
			msg.Metadata = metadata
			want[msg.UUID] = msg
		}
		empty := message.NewMessage("no payload", nil)
		want["no payload"] = empty
		publisher := publisherFor(t, database, nil)
		for _, msg := range want {
			inTx(t, database.DB, publisher, "topic", msg)
		}
		to := &broker{}
		run(t, forwarderFor(t, database, to, nil))
		eventually(t, func() bool { return pending(t, database) == 0 }, "all are published")
		got := to.all()
		require.Len(t, got, len(want))
		for _, p := range got {
			sent := want[p.message.UUID]
			require.NotNil(t, sent)
			require.Equal(t, string(sent.Payload), string(p.message.Payload))
			require.Len(t, p.message.Metadata, len(sent.Metadata))
			for key, value := range sent.Metadata {
				require.Equal(t, value, p.message.Metadata[key])
			}
		}
	})
}

// Covers feature 4.4.
func TestPublisher_gives_a_message_without_an_id_one_when_it_is_written(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	msg := newMessage("", "")
	inTx(t, database.DB, publisherFor(t, database, nil), "topic", msg)
	require.Empty(t, msg.UUID, "the message of the caller is left alone")
	to := &broker{}
	run(t, forwarderFor(t, database, to, nil))
	eventually(t, func() bool { return len(to.ids()) == 1 }, "it is published")
	require.Len(t, to.ids()[0], 36)
}

func TestPublisher_ordering_key_from_the_config_travels_as_metadata(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) {
		c.OrderingKey = func(_ string, msg *message.Message) string { return msg.Metadata.Get("customer") }
	})
	msg := newMessage("1", "")
	msg.Metadata.Set("customer", "7")
	inTx(t, database.DB, publisher, "topic", msg)
	require.Empty(t, msg.Metadata.Get(postbox.MetadataOrderingKey), "the message of the caller is left alone")
	to := &broker{}
	run(t, forwarderFor(t, database, to, nil))
	eventually(t, func() bool { return len(to.ids()) == 1 }, "it is published")
	require.Equal(t, "7", to.all()[0].message.Metadata.Get(postbox.MetadataOrderingKey))
}

func TestPublisher_G11_delays_of_watermill(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		soon, later, until := newMessage("soon", ""), newMessage("later", ""), newMessage("until", "")
		delay.Message(soon, delay.For(2*time.Second))
		// This producer's clock is an hour slow: the duration counts, from the database's now.
		soon.Metadata.Set(delay.DelayedUntilKey, time.Now().Add(-time.Hour).Format(time.RFC3339))
		delay.Message(later, delay.For(time.Hour))
		until.Metadata.Set(delay.DelayedUntilKey, time.Now().Add(-time.Minute).Format(time.RFC3339))
		publisher := publisherFor(t, database, nil)
		inTx(t, database.DB, publisher, "topic", soon, later, until, newMessage("now", ""))
		to := &broker{}
		run(t, forwarderFor(t, database, to, nil))
		eventually(t, func() bool { return len(to.ids()) == 3 }, "three are due")
		require.Equal(t, "soon", to.ids()[2])
		eventually(t, func() bool { return pending(t, database) == 1 }, "the fourth is not")
		for _, sent := range to.all() { // a queue that it is deferred to would wait for the same time again
			require.NotContains(t, sent.message.Metadata, delay.DelayedForKey)
			require.NotContains(t, sent.message.Metadata, delay.DelayedUntilKey)
		}
	})
}

func TestPublisher_bad_input_says_what_to_do(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.MaxPayload = 50 })
	badDelay := newMessage("1", "")
	badDelay.Metadata.Set(delay.DelayedForKey, "soon")
	for name, test := range map[string]struct {
		topic string
		msg   *message.Message
		want  string
	}{
		"empty topic": {"", newMessage("1", ""), "topic is empty"},
		"long topic":  {strings.Repeat("t", 300), newMessage("1", ""), "300 bytes"},
		"NUL topic":   {"a\x00b", newMessage("1", ""), "NUL"},
		"large":       {"topic", newMessage(strings.Repeat("long", 20), ""), "MaxPayload is 50"},
		"bad delay":   {"topic", badDelay, delay.DelayedForKey},
	} {
		err := postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			test.msg.SetContext(ctx)
			return publisher.Publish(test.topic, test.msg)
		})
		require.ErrorContains(t, err, test.want, name)
	}
	require.NoError(t, publisher.Publish("topic"), "nothing to publish is no error")
	require.Zero(t, pending(t, database))

	_, err := forwarder.NewPublisher(postbox.Database{DB: database.DB}, forwarder.PublisherConfig{MaxPayload: -1}, nil)
	require.ErrorContains(t, err, "dialect is missing")
	require.ErrorContains(t, err, "max payload")
	_, err = forwarder.NewPublisher(postbox.Database{Dialect: postbox.SQLite}, forwarder.PublisherConfig{}, nil)
	require.Error(t, err)
	other := postbox.Database{DB: database.DB, Dialect: postbox.MySQL, Schema: "other"}
	_, err = forwarder.NewPublisher(other, forwarder.PublisherConfig{}, nil)
	require.ErrorContains(t, err, `Schema "other": MySQL and MariaDB have no schemas`)
	_, err = forwarder.New(other, &broker{}, forwarder.Config{}, nil)
	require.ErrorContains(t, err, `Schema "other": MySQL and MariaDB have no schemas`)
}

func TestPublisher_G12_close_twice_then_closed(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.AllowAutocommit = true })
	require.NoError(t, forwarder.KeepOpen(publisher).Close())
	require.NoError(t, publisher.Publish("topic", newMessage("1", "")))
	require.NoError(t, publisher.Close())
	require.NoError(t, publisher.Close())
	require.ErrorIs(t, publisher.Publish("topic", newMessage("2", "")), postbox.ErrClosed)
}
