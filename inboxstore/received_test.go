package inboxstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// billing is where the messages of the consumer of key are kept.
var billing = admin.Inbox(key.Consumer)

func received(id, payload string) inboxstore.Received {
	msg := message.NewMessage(id, []byte(payload))
	msg.Metadata = message.Metadata{postbox.MetadataOrderingKey: "customer 1", "bytes": "\x00\xff"}
	return inboxstore.Received{Message: msg, History: time.Hour}
}

func operatorOf(t *testing.T, database *testdb.Database) *admin.Admin {
	t.Helper()
	operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	return operator
}

// kept returns the messages of the history, the latest first, with their content.
func kept(t *testing.T, operator *admin.Admin) (messages []*admin.Message) {
	t.Helper()
	listed, _, err := operator.Messages(t.Context(), admin.Filter{Target: billing, Status: admin.Done})
	require.NoError(t, err)
	for _, m := range listed {
		read, err := operator.Message(t.Context(), admin.Filter{Target: billing, ID: m.ID})
		require.NoError(t, err)
		messages = append(messages, read)
	}
	return messages
}

func succeeds(context.Context) error { return nil }

// within runs fn in a transaction of the user, as that of a subscriber, and commits.
func within(t *testing.T, database *testdb.Database, fn func(ctx context.Context)) {
	t.Helper()
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	fn(postbox.ContextWithTx(t.Context(), tx))
	require.NoError(t, tx.Commit())
}

// In a transaction of its own, and in one of the user.
func TestStore_G4_a_received_message_is_kept_with_the_effect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store, operator := inboxtest.StoreFor(t, database, database.DB, nil), operatorOf(t, database)
		handle := func(ctx context.Context, id string, err error) (fresh bool, _ error) {
			return store.OnceReceived(ctx, inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: id}, received(id, "payload of "+id), effect(t, err))
		}
		var failure *inboxstore.HandlerError
		within(t, database, func(ctx context.Context) { // the first call, which finds no history
			_, err := handle(ctx, "1", inboxtest.ErrHandler)
			require.ErrorAs(t, err, &failure)
			for _, want := range []bool{true, false} {
				fresh, err := handle(ctx, "1", nil)
				require.NoError(t, err)
				require.Equal(t, want, fresh)
			}
		})
		_, err := handle(t.Context(), "2", inboxtest.ErrHandler)
		require.ErrorAs(t, err, &failure)
		for _, want := range []bool{true, false} {
			fresh, err := handle(t.Context(), "2", nil)
			require.NoError(t, err)
			require.Equal(t, want, fresh)
		}
		messages := kept(t, operator)
		require.Len(t, messages, 2)
		require.Equal(t, 2, effects(t, database))
		m := messages[0]
		require.Equal(t, []any{admin.Done, "orders", "2", "customer 1", 0}, []any{m.Status, m.Topic, m.MessageID, m.Key, m.Omitted})
		require.Equal(t, "payload of 2", string(m.Payload))
		require.Equal(t, received("", "").Message.Metadata, m.Metadata)
		require.False(t, m.DoneAt.Before(m.CreatedAt))
		require.Less(t, m.ID, int64(1)<<53, "programs that read JSON keep all its digits")

		queues, err := operator.Queues(t.Context())
		require.NoError(t, err)
		require.Equal(t, []admin.QueueInfo{{Target: admin.Inbox("billing"), HasHistory: true, Done: 2}}, queues, "an inbox is neither an outbox nor a queue")
	})
}

// The transaction of the user has the first message of a consumer, which registers its history, and
// is rolled back.
func TestStore_G4_a_rolled_back_transaction_keeps_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		fresh, err := store.OnceReceived(postbox.ContextWithTx(t.Context(), tx), key, received("1", ""), succeeds)
		require.NoError(t, err)
		require.True(t, fresh)
		require.NoError(t, tx.Rollback())
		fresh, err = store.OnceReceived(t.Context(), key, received("1", "again"), succeeds)
		require.NoError(t, err)
		require.True(t, fresh)
		messages := kept(t, operatorOf(t, database))
		require.Len(t, messages, 1)
		require.Equal(t, "again", string(messages[0].Payload))
	})
}

// As a deadlock does on MariaDB and MySQL. What is written after it is committed at once, and so
// would be the entry.
func TestStore_G4_a_message_whose_transaction_has_ended_is_not_kept(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		ends := func(ctx context.Context) error {
			tx, _ := postbox.TxFromContext(ctx)
			_, err := tx.ExecContext(ctx, "ROLLBACK")
			return err
		}
		_, err := store.OnceReceived(t.Context(), key, received("1", ""), ends)
		require.Error(t, err)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = store.OnceReceived(postbox.ContextWithTx(t.Context(), tx), key, received("1", ""), ends)
		require.Error(t, err)
		_ = tx.Rollback()
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_history"))
	})
}

// A handler that overlooks the error of a statement has failed, also in a transaction of the user.
// On other databases than PostgreSQL only the statement is rolled back.
func TestStore_G4_a_handler_that_overlooks_an_error_keeps_nothing_on_PostgreSQL(t *testing.T) {
	t.Parallel()
	database := withEffects(t, testdb.Postgres(t))
	store := inboxtest.StoreFor(t, database, database.DB, nil)
	overlooks := func(ctx context.Context) error {
		tx, _ := postbox.TxFromContext(ctx)
		if _, err := tx.ExecContext(ctx, "SELECT 1/0"); err == nil {
			return errors.New("the statement did not fail")
		}
		return nil
	}
	var failure *inboxstore.HandlerError
	within(t, database, func(ctx context.Context) {
		_, err := store.OnceReceived(ctx, key, received("1", ""), overlooks)
		require.ErrorAs(t, err, &failure)
	})
	_, err := store.OnceReceived(t.Context(), key, received("1", ""), overlooks)
	require.ErrorAs(t, err, &failure)
	require.Empty(t, kept(t, operatorOf(t, database)))
}

// What a broker delivers may be anything. It must neither be refused nor grow the table without
// bounds.
func TestStore_keeps_hostile_messages_within_bounds(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		store, operator := inboxtest.StoreFor(t, database, database.DB, nil), operatorOf(t, database)
		const most = 1000
		large := strings.Repeat("x", most)
		hostile := inboxstore.Received{
			Message: &message.Message{Metadata: message.Metadata{postbox.MetadataOrderingKey: strings.Repeat("\x00\xff", 40_000)}}, History: time.Hour, MaxPayload: most,
		}
		for topic, r := range map[string]inboxstore.Received{
			"large payload":                     {Message: message.NewMessage("", []byte(large)), History: time.Hour, MaxPayload: most},
			"large metadata":                    {Message: &message.Message{Metadata: message.Metadata{"a": large}, Payload: []byte("b")}, History: time.Hour, MaxPayload: most},
			strings.Repeat("\x00\xff é", 1_000): hostile,
		} {
			k := inboxstore.Key{Consumer: "billing", Topic: topic, MessageID: strings.Repeat("id\xff", 30_000)}
			fresh, err := store.OnceReceived(t.Context(), k, r, succeeds)
			require.NoError(t, err, "%.20q", topic)
			require.True(t, fresh)
		}
		omitted := map[string]int{}
		for _, m := range kept(t, operator) {
			require.LessOrEqual(t, m.Size, most)
			require.LessOrEqual(t, len(m.MessageID), 65_535)
			omitted[m.Topic] = m.Omitted
		}
		require.Len(t, omitted, 3)
		require.Equal(t, most, omitted["large payload"])
		require.Equal(t, len(`b{"a":""}`)+most, omitted["large metadata"])
		_, err := store.OnceReceived(t.Context(), inboxstore.Key{Consumer: strings.Repeat("\x00long name ", 100), MessageID: "1"}, received("1", ""), succeeds)
		require.NoError(t, err, "any name of a consumer")
	})
}

func TestStore_OnceReceived_refuses_what_it_cannot_keep(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	store := inboxtest.StoreFor(t, database, database.DB, nil)
	_, err := store.OnceReceived(t.Context(), key, inboxstore.Received{MaxPayload: -1}, succeeds)
	require.ErrorContains(t, err, "Message: is nil")
	require.ErrorContains(t, err, "History: 0s is not above 0")
	require.ErrorContains(t, err, "MaxPayload: -1 bytes is negative")
}

// Messages of the same microsecond get different ids. The clock of SQLite counts milliseconds, so
// most of these are handled at the same time.
func TestStore_gives_each_received_message_an_id_of_its_own(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	store := inboxtest.StoreFor(t, database, database.DB, nil)
	const n = 200
	within(t, database, func(ctx context.Context) {
		for _, id := range inboxtest.Numbers(n) {
			_, err := store.OnceReceived(ctx, inboxstore.Key{Consumer: "billing", MessageID: id}, received(id, ""), succeeds)
			require.NoError(t, err)
		}
	})
	require.Equal(t, n, database.Count(t, "SELECT COUNT(DISTINCT id) FROM postbox_history"))
}

// The configured retention is stored for the process that cleans up, and an operator can turn the
// history off for all processes.
func TestStore_keeps_nothing_while_an_operator_has_turned_the_history_off(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		operator := operatorOf(t, database)
		once := func(store *inboxstore.Store, id string) {
			_, err := store.OnceReceived(t.Context(), inboxstore.Key{Consumer: "billing", MessageID: id}, received(id, ""), succeeds)
			require.NoError(t, err)
		}
		once(inboxtest.StoreFor(t, database, database.DB, nil), "1")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_spools WHERE history = ?", time.Hour.Microseconds()))
		require.NoError(t, storeSettings(t.Context(), operator, billing, admin.Settings{History: -1}))
		once(inboxtest.StoreFor(t, database, database.DB, nil), "2")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE message_id = ?", []byte("2"))) // the cleanup deletes what was kept before, at any time
		require.NoError(t, storeSettings(t.Context(), operator, billing, admin.Settings{}))
		once(inboxtest.StoreFor(t, database, database.DB, nil), "3")
		require.Equal(t, "3", kept(t, operator)[0].MessageID)
	})
}

// A process that had nothing to do for a while does not know yet what operators have changed
// meanwhile.
func TestStore_knows_after_a_pause_whether_the_history_is_off(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		operator, store := operatorOf(t, database), inboxtest.StoreFor(t, database, database.DB, nil)
		database.DB.SetMaxOpenConns(1) // so that it cannot look in the background before the transaction has ended
		once := func(ctx context.Context, id string) {
			_, err := store.OnceReceived(ctx, inboxstore.Key{Consumer: "billing", MessageID: id}, received(id, ""), succeeds)
			require.NoError(t, err)
		}
		once(t.Context(), "first")
		for id, history := range map[string]time.Duration{"off": -1, "on": 0, "off again": -1} {
			require.NoError(t, storeSettings(t.Context(), operator, billing, admin.Settings{History: history}))
			store.AgeHistories(time.Minute)
			within(t, database, func(ctx context.Context) { once(ctx, id) })
			require.Equal(t, id == "on", database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE message_id = ?", []byte(id)) == 1, id)
		}
	})
}

// A transaction of the user may be the only one that a pool has room for.
func TestStore_G10_keeps_received_messages_with_one_connection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.DB.SetMaxOpenConns(1)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		within(t, database, func(ctx context.Context) {
			for _, id := range []string{"1", "2"} {
				_, err := store.OnceReceived(ctx, inboxstore.Key{Consumer: "billing", MessageID: id}, received(id, ""), succeeds)
				require.NoError(t, err)
			}
		})
		_, err := store.OnceReceived(t.Context(), key, received("3", ""), func(ctx context.Context) error {
			tx, _ := postbox.TxFromContext(ctx)
			var one int
			return tx.QueryRowContext(ctx, "SELECT 1").Scan(&one)
		})
		require.NoError(t, err)
		require.Len(t, kept(t, operatorOf(t, database)), 3)
	})
}

// An inbox that keeps nothing looks for no history, and another one takes a single statement more.
func TestStore_a_history_costs_one_statement(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	pool, counts := inboxtest.Counted(t, database)
	store := inboxtest.StoreFor(t, database, pool, nil)
	for range 3 {
		_, err := store.Once(t.Context(), inboxstore.Key{Consumer: "billing", MessageID: postbox.NewMessageID()}, succeeds)
		require.NoError(t, err)
	}
	require.Zero(t, counts.History.Load())
	for range 3 {
		_, err := store.OnceReceived(t.Context(), inboxstore.Key{Consumer: "billing", MessageID: postbox.NewMessageID()}, received("", ""), succeeds)
		require.NoError(t, err)
	}
	require.EqualValues(t, 3+lookups, counts.History.Load())
}

// lookups is the number of statements with which a store finds a history that is not registered,
// and reads its settings, once for each consumer.
const lookups = 4

// storeSettings stores settings in place of those that are stored.
func storeSettings(ctx context.Context, a *admin.Admin, target admin.Target, settings admin.Settings) error {
	_, err := a.ChangeSettings(ctx, target, func(stored *admin.Settings) error {
		*stored = settings
		return nil
	})
	return err
}
