package inboxstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// lenient makes MySQL and MariaDB cut off what is too long for a column, and report a warning only.
func lenient(t *testing.T, database *testdb.Database) {
	t.Helper()
	database.Migrate(t)
	if database.Dialect == postbox.MySQL {
		config, err := mysql.ParseDSN(database.DSN)
		require.NoError(t, err)
		config.Params = map[string]string{"sql_mode": "''"}
		database.DSN = config.FormatDSN()
		database.DB = database.Open(t)
	}
}

// longest is what an id and an ordering key may have.
const longest = 65_535

func TestDefer_refuses_values_that_not_every_database_can_store(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		lenient(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		for name, ids := range map[string]struct{ id, key string }{
			"id":  {strings.Repeat("i", longest+1), ""},
			"key": {"1", strings.Repeat("k", longest+1)},
		} {
			msg := message.NewMessage(ids.id, nil)
			msg.Metadata.Set(postbox.MetadataOrderingKey, ids.key)
			_, err := store.Defer(t.Context(), "queue", key, msg)
			var permanent *verdict.PermanentError
			require.ErrorAs(t, err, &permanent, name)
			require.ErrorContains(t, err, "65536 bytes, the limit is 65535", name)
		}
		_, err := store.Defer(t.Context(), "queue ", key, message.NewMessage("1", nil))
		require.ErrorIs(t, err, spool.ErrName)
		require.ErrorIs(t, inboxtest.SubscriberFor(t, store).SubscribeInitialize("queue "), spool.ErrName)
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))

		whole := message.NewMessage(strings.Repeat("i", longest), nil)
		whole.Metadata.Set(postbox.MetadataOrderingKey, strings.Repeat("k", longest))
		fresh, err := store.Defer(t.Context(), "queue", key, whole)
		require.NoError(t, err)
		require.True(t, fresh)
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ? AND ordering_key = ?",
			[]byte(whole.UUID), []byte(whole.Metadata.Get(postbox.MetadataOrderingKey))))
	})
}

// The broker has chosen the id. A message that cannot be buried would be nacked for ever.
func TestBury_G2_dead_letter_keeps_the_beginning_of_an_id_and_key_that_are_too_long(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		lenient(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		long := inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: strings.Repeat("i", longest+10)}
		msg := message.NewMessage(long.MessageID, []byte("payload"))
		msg.Metadata.Set(postbox.MetadataOrderingKey, strings.Repeat("k", longest+10))
		for range 2 {
			require.NoError(t, store.Bury(t.Context(), long, msg, 15, inboxtest.ErrHandler))
		}
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE message_id = ? AND ordering_key = ? AND payload = ?",
			[]byte(long.MessageID[:longest]), []byte(strings.Repeat("k", longest)), []byte("payload")))
		fresh, err := store.Once(t.Context(), long, func(context.Context) error { return errors.New("the function of a duplicate ran") })
		require.NoError(t, err)
		require.False(t, fresh, "it is claimed")
	})
}
