package inboxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// deferred stores a message with this id in the queue "q".
func deferred(ctx context.Context, store *inboxstore.Store, id string) (fresh bool, err error) {
	return store.Defer(ctx, "q", deferKey(id), message.NewMessage(id, []byte("payload of "+id)))
}

func deferKey(id string) inboxstore.Key {
	return inboxstore.Key{Consumer: "queue q", Topic: "orders", MessageID: id}
}

func storedMessages(t *testing.T, database *testdb.Database) int {
	t.Helper()
	return database.Count(t, "SELECT COUNT(*) FROM postbox_messages")
}

func TestDefer_G5_stores_a_message_once_before_it_returns(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		store := inboxtest.StoreFor(t, database.Migrate(t), database.Open(t), nil)
		for i := range 5 {
			for copies := range 3 {
				fresh, err := deferred(t.Context(), store, strconv.Itoa(i))
				require.NoError(t, err)
				require.Equal(t, copies == 0, fresh)
				require.Equal(t, i+1, storedMessages(t, database), "another connection sees it: it is committed")
			}
		}
		require.Equal(t, 5, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
		another := inboxtest.StoreFor(t, database, database.DB, nil) // F6: another process, or this one after a restart
		fresh, err := deferred(t.Context(), another, "3")
		require.NoError(t, err)
		require.False(t, fresh)
		require.Equal(t, 5, storedMessages(t, database))
	})
}

// A rebalance: both members have the messages in hand, in many copies at the same instant.
// Also covers F6 and F25.
func TestDefer_G5_stores_one_of_many_copies_in_two_processes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		const messages, copies = 50, 64
		database.Migrate(t)
		stores := []*inboxstore.Store{inboxtest.StoreFor(t, database, database.DB, nil), inboxtest.StoreFor(t, database, database.Open(t), nil)}
		var fresh [messages]atomic.Int32
		var wg sync.WaitGroup
		for copied := range copies {
			wg.Go(func() {
				for i := range messages {
					if copied%4 >= 2 { // half of the copies come in the opposite order
						i = messages - 1 - i
					}
					first, err := deferred(t.Context(), stores[copied%2], strconv.Itoa(i))
					if err != nil {
						t.Error(err)
					}
					if first {
						fresh[i].Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, messages, storedMessages(t, database))
		require.Equal(t, messages, database.Count(t, "SELECT COUNT(DISTINCT message_id) FROM postbox_messages"))
		for i := range fresh {
			require.EqualValues(t, 1, fresh[i].Load(), "message %d is fresh for one of its deliveries", i)
		}
	})
}

func TestDefer_G3_ids_follow_the_order_of_arrival(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		store := inboxtest.StoreFor(t, database.Migrate(t), database.DB, nil)
		const consumers, messages = 8, 25
		var wg sync.WaitGroup
		for consumer := range consumers { // each delivers one message after the other, and they share commits
			wg.Go(func() {
				for i := range messages {
					msg := message.NewMessage(fmt.Sprintf("%d-%03d", consumer, i), nil)
					msg.Metadata.Set(postbox.MetadataOrderingKey, strconv.Itoa(consumer))
					if _, err := store.Defer(t.Context(), "q", deferKey(msg.UUID), msg); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, consumers*messages, storedMessages(t, database))
		require.Zero(t, database.Count(t, `SELECT COUNT(*) FROM postbox_messages a JOIN postbox_messages b
			ON a.key_hash = b.key_hash AND a.lane = b.lane AND a.id < b.id AND a.message_id > b.message_id`))
		require.Equal(t, consumers, database.Count(t, "SELECT COUNT(DISTINCT key_hash) FROM postbox_messages"))
	})
}

func TestDefer_in_a_transaction_of_the_user(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1) // G10
		store := inboxtest.StoreFor(t, database.Migrate(t), database.DB, nil)
		run := func(commit bool) {
			tx, err := database.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			ctx := postbox.ContextWithTx(t.Context(), tx)
			for copies := range 2 {
				fresh, err := deferred(ctx, store, "1")
				require.NoError(t, err)
				require.Equal(t, copies == 0, fresh)
			}
			if commit {
				require.NoError(t, tx.Commit())
			} else {
				require.NoError(t, tx.Rollback())
			}
		}
		run(false)
		require.Zero(t, storedMessages(t, database), "the owner rolled back")
		run(true)
		require.Equal(t, 1, storedMessages(t, database))
		fresh, err := deferred(t.Context(), store, "1")
		require.NoError(t, err)
		require.False(t, fresh)
	})
}

func TestDefer_applies_delay_metadata_by_the_clock_of_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		store := inboxtest.StoreFor(t, database.Migrate(t), database.DB, nil)
		later, until, now := message.NewMessage("later", nil), message.NewMessage("until", nil), message.NewMessage("now", nil)
		delay.Message(later, delay.For(time.Hour))
		until.Metadata.Set(delay.DelayedUntilKey, time.Now().Add(2*time.Hour).Format(time.RFC3339))
		inTx := message.NewMessage("tx", nil)
		delay.Message(inTx, delay.For(time.Hour))
		for _, msg := range []*message.Message{later, until, now} {
			_, err := store.Defer(t.Context(), "q", deferKey(msg.UUID), msg)
			require.NoError(t, err)
		}
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = store.Defer(postbox.ContextWithTx(t.Context(), tx), "q", deferKey("tx"), inTx)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())

		const waiting = "SELECT COUNT(*) FROM postbox_messages WHERE state = 1 AND available_at - created_at BETWEEN ? AND ?"
		require.Equal(t, 2, database.Count(t, waiting, int64(3599e6), int64(3601e6)))
		require.Equal(t, 1, database.Count(t, waiting, int64(7190e6), int64(7210e6)))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 0"))
		bad := message.NewMessage("bad", nil)
		bad.Metadata.Set(delay.DelayedForKey, "soon")
		_, err = store.Defer(t.Context(), "q", deferKey("bad"), bad)
		require.ErrorContains(t, err, delay.DelayedForKey)
		require.ErrorIs(t, err, postbox.ErrPermanent)
	})
}

func TestDefer_stores_id_payload_metadata_and_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		store := inboxtest.StoreFor(t, database.Migrate(t), database.DB, nil)
		named := message.NewMessage("uuid", []byte("\x00\xff"))
		named.Metadata = message.Metadata{"a": "\x00\xff", postbox.MetadataOrderingKey: "customer 7"}
		before := maps.Clone(named.Metadata)
		for key, msg := range map[string]*message.Message{"orders/3/42": named, "orders/3/43": {}} {
			fresh, err := store.Defer(t.Context(), "q", deferKey(key), msg)
			require.NoError(t, err)
			require.True(t, fresh)
		}
		require.Equal(t, before, named.Metadata)
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ? AND payload = ? AND key_hash = ? AND topic = 'q'",
			[]byte("uuid"), []byte("\x00\xff"), keyhash.Of("customer 7")))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ? AND key_hash IS NULL",
			[]byte("orders/3/43")), "without a UUID the name is all there is")
	})
}

func TestDefer_G8_too_large_says_what_to_do(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	store := inboxtest.StoreFor(t, database, database.DB, func(c *inboxstore.Config) { c.MaxPayload = 100 })
	msg := message.NewMessage("1", make([]byte, 90))
	msg.Metadata.Set("12345", "123456")
	_, err := store.Defer(t.Context(), "q", deferKey("1"), msg)
	require.ErrorContains(t, err, "101 bytes and Config.MaxPayload is 100")
	require.ErrorIs(t, err, postbox.ErrPermanent)
	msg.Payload = msg.Payload[:89]
	_, err = store.Defer(t.Context(), "q", deferKey("1"), msg)
	require.NoError(t, err)
	_, err = inboxstore.New(database.Postbox(), inboxstore.Config{MaxPayload: -1}, nil)
	require.ErrorContains(t, err, "MaxPayload")
}

// A promoted standby or a restored backup has lost the claim together with the message.
func TestDefer_G5_only_a_claim_in_the_database_makes_a_duplicate(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	store := inboxtest.StoreFor(t, database, database.DB, nil)
	stranger := inboxtest.StoreFor(t, database, database.DB, nil)
	_, err := deferred(t.Context(), store, "mine")
	require.NoError(t, err)
	_, err = deferred(t.Context(), stranger, "theirs")
	require.NoError(t, err)
	fresh, err := deferred(t.Context(), store, "theirs")
	require.NoError(t, err)
	require.False(t, fresh)
	database.Exec(t, "DELETE FROM postbox_claims") // an operator sets what was claimed elsewhere free
	fresh, err = deferred(t.Context(), store, "theirs")
	require.NoError(t, err)
	require.True(t, fresh)

	_, err = deferred(t.Context(), store, "again")
	require.NoError(t, err)
	fresh, err = deferred(t.Context(), store, "again")
	require.NoError(t, err)
	require.False(t, fresh)
	database.Exec(t, "DELETE FROM postbox_claims")
	database.Exec(t, "DELETE FROM postbox_messages")
	fresh, err = deferred(t.Context(), store, "again")
	require.NoError(t, err)
	require.True(t, fresh, "the database went back to a time before this message")
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
}

// The first message of a store starts its cleanup, which Close waits for: the race detector sees
// whether the two know of each other.
func TestDefer_G12_close_during_the_first_message_loses_nothing(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	for i := range 300 {
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		var wg sync.WaitGroup
		begun := make(chan struct{})
		wg.Go(func() {
			close(begun)
			if _, err := deferred(t.Context(), store, strconv.Itoa(i)); err != nil && !errors.Is(err, postbox.ErrClosed) {
				t.Error(err)
			}
		})
		<-begun
		require.NoError(t, store.Close())
		wg.Wait()
	}
}

func TestDefer_G12_closed_store(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		store := inboxtest.StoreFor(t, database.Migrate(t), database.DB, nil)
		const deliveries = 200
		var stored atomic.Int32
		var wg sync.WaitGroup
		begun := make(chan struct{}, deliveries)
		for i := range deliveries {
			wg.Go(func() {
				begun <- struct{}{}
				_, err := deferred(t.Context(), store, strconv.Itoa(i))
				switch {
				case err == nil:
					stored.Add(1)
				case !errors.Is(err, postbox.ErrClosed):
					t.Error(err)
				}
			})
		}
		for range deliveries / 2 {
			<-begun
		}
		require.NoError(t, store.Close())
		inTime := storedMessages(t, database)
		wg.Wait()
		require.EqualValues(t, inTime, stored.Load(), "waiting deliveries are stored, and nothing after the close")
		require.Equal(t, inTime, storedMessages(t, database))
		for _, queue := range []string{"q", "another queue"} {
			_, err := store.Defer(t.Context(), queue, deferKey("late"), message.NewMessage("late", nil))
			require.ErrorIs(t, err, postbox.ErrClosed)
		}
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = deferred(postbox.ContextWithTx(t.Context(), tx), store, "late")
		require.ErrorIs(t, err, postbox.ErrClosed)
		require.NoError(t, tx.Rollback())
		require.NoError(t, store.Close())
	})
}

// Whoever drains the queue looks for messages by itself once an hour.
func TestDefer_wakes_the_subscriber_of_the_same_process(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	store := inboxtest.StoreFor(t, database, database.DB, nil)
	subscriber, err := queue.NewSubscriber(store, queue.Config{Tuning: postbox.Tuning{PollMin: time.Hour, PollMax: time.Hour}}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, subscriber.Close()) }()
	messages, err := subscriber.Subscribe(t.Context(), "wake-ups")
	require.NoError(t, err)
	for i := range 10 {
		id := strconv.Itoa(i)
		deliver := func(ctx context.Context) error {
			_, err := store.Defer(ctx, "wake-ups", deferKey(id), message.NewMessage(id, nil))
			return err
		}
		if i%2 == 0 {
			err = deliver(t.Context())
		} else {
			err = postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error { return deliver(ctx) })
		}
		require.NoError(t, err)
		msg := <-messages
		require.Equal(t, id, msg.UUID)
		msg.Ack()
	}
}

func TestDefer_notifies_other_processes_unless_turned_off(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	silent, loud := "silent "+postbox.NewMessageID(), "loud "+postbox.NewMessageID() // the server has one set of channels
	listener := pq.NewListener(database.DSN, time.Millisecond, time.Second, nil)
	defer func() { require.NoError(t, listener.Close()) }()
	for _, channel := range []string{"postbox_inbox " + silent, "postbox_inbox " + loud, "end of " + loud} {
		require.NoError(t, listener.Listen(channel))
	}
	for _, queue := range []string{silent, loud} {
		store := inboxtest.StoreFor(t, database, database.DB, func(c *inboxstore.Config) { c.DisableNotify = queue == silent })
		_, err := store.Defer(t.Context(), queue, deferKey(queue), message.NewMessage("1", nil))
		require.NoError(t, err)
		require.NoError(t, store.Close(), "waits for the NOTIFY")
	}
	database.Exec(t, "SELECT pg_notify(?, '')", "end of "+loud)
	require.Equal(t, "postbox_inbox "+loud, (<-listener.Notify).Channel)
	require.Equal(t, "end of "+loud, (<-listener.Notify).Channel)
}
