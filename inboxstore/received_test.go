package inboxstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func received(id, payload string) inboxstore.Received {
	msg := message.NewMessage(id, []byte(payload))
	msg.Metadata = message.Metadata{postbox.MetadataOrderingKey: "customer 1", "bytes": "\x00\xff"}
	return inboxstore.Received{Message: msg, History: time.Hour}
}

// kept returns how many messages of the consumer of key are in the history.
func kept(t *testing.T, database *testdb.Database) int {
	t.Helper()
	return database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE spool = (SELECT id FROM postbox_spools WHERE name = ?)", spool.InboxName(key.Consumer))
}

// turnHistory stores how long the history of the consumer of key is kept, as an operator does.
func turnHistory(t *testing.T, database *testdb.Database, history time.Duration) {
	t.Helper()
	enginetest.StoreSettings(t, database, spool.InboxName(key.Consumer), spool.Settings{History: history})
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
		require.Equal(t, 1, kept(t, database))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE payload = ?", []byte("again")))
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
	require.Zero(t, kept(t, database))
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
		once := func(store *inboxstore.Store, id string) {
			_, err := store.OnceReceived(t.Context(), inboxstore.Key{Consumer: "billing", MessageID: id}, received(id, ""), succeeds)
			require.NoError(t, err)
		}
		once(inboxtest.StoreFor(t, database, database.DB, nil), "1")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_spools WHERE history = ?", time.Hour.Microseconds()))
		turnHistory(t, database, -1)
		once(inboxtest.StoreFor(t, database, database.DB, nil), "2")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE message_id = ?", []byte("2"))) // the cleanup deletes what was kept before, at any time
		turnHistory(t, database, 0)
		once(inboxtest.StoreFor(t, database, database.DB, nil), "3")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE message_id = ?", []byte("3")))
	})
}

// A process that had nothing to do for a while does not know yet what operators have changed
// meanwhile.
func TestStore_knows_after_a_pause_whether_the_history_is_off(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		database.DB.SetMaxOpenConns(1) // so that it cannot look in the background before the transaction has ended
		once := func(ctx context.Context, id string) {
			_, err := store.OnceReceived(ctx, inboxstore.Key{Consumer: "billing", MessageID: id}, received(id, ""), succeeds)
			require.NoError(t, err)
		}
		once(t.Context(), "first")
		for id, history := range map[string]time.Duration{"off": -1, "on": 0, "off again": -1} {
			turnHistory(t, database, history)
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
		require.Equal(t, 3, kept(t, database))
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
