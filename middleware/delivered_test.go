package middleware_test

import (
	"context"
	"database/sql"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// encrypted returns a message as a broker delivers it.
func encrypted() *message.Message {
	msg := message.NewMessage("1", []byte("ENC(100 EUR)"))
	msg.Metadata.Set(postbox.MetadataOrderingKey, "account-1")
	return msg
}

// decrypt changes all of a message that a handler can change, the bytes of its payload in place. It
// fails where it has done so before.
func decrypt(t *testing.T, msg *message.Message) {
	t.Helper()
	requireDelivered(t, msg)
	copy(msg.Payload, strings.ToLower(string(msg.Payload)))
	msg.Payload = append(msg.Payload[:0], msg.Payload[4:11]...)
	msg.UUID = "another"
	msg.Metadata.Set(postbox.MetadataOrderingKey, "another")
	msg.Metadata.Set("plain", "yes")
}

func requireDelivered(t *testing.T, msg *message.Message) {
	t.Helper()
	want := encrypted()
	require.Equal(t, want.UUID, msg.UUID)
	require.Equal(t, string(want.Payload), string(msg.Payload))
	require.Equal(t, want.Metadata, msg.Metadata)
}

func TestInbox_dead_letter_holds_the_message_as_it_was_delivered(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, nil)
		msg := encrypted()
		_, err := inbox.Process(t.Context(), msg, func(msg *message.Message) ([]*message.Message, error) {
			decrypt(t, msg)
			return nil, postbox.Permanent(errHandler)
		})
		require.NoError(t, err)
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
		var payload, metadata, key []byte
		require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT payload, metadata, ordering_key FROM postbox_dead_letters").Scan(&payload, &metadata, &key))
		require.Equal(t, string(encrypted().Payload), string(payload))
		decoded, err := spool.DecodeMetadata(metadata)
		require.NoError(t, err)
		require.Equal(t, encrypted().Metadata, message.Metadata(decoded))
		require.Equal(t, "account-1", string(key))
	})
}

// A broker or a middleware that delivers the same message again, or the same bytes, as GoChannel
// and Watermill's Retry do.
func TestInbox_after_a_failure_the_message_is_as_it_was_delivered(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, nil)
		msg := encrypted()
		bytes := msg.Payload
		for _, want := range []error{errHandler, errHandler, nil} {
			_, err := inbox.Process(t.Context(), msg, func(given *message.Message) ([]*message.Message, error) {
				require.Same(t, msg, given, "Ack and Nack belong to it")
				decrypt(t, msg)
				return nil, want
			})
			require.ErrorIs(t, err, want)
			require.Equal(t, string(encrypted().Payload), string(bytes), "these are the subscriber's")
			if want != nil {
				requireDelivered(t, msg)
			}
		}
	})
}

// conflicting is a store that runs each handler again, as after a serialization failure.
type conflicting struct{ middleware.InboxStore }

func (s conflicting) Once(ctx context.Context, key inboxstore.Key, fn func(context.Context) error) (bool, error) {
	for range 2 {
		if err := fn(ctx); err != nil {
			return false, err
		}
	}
	return s.InboxStore.Once(ctx, key, fn)
}

func TestInbox_each_run_after_a_conflict_gets_the_message_as_it_was_delivered(t *testing.T) {
	t.Parallel()
	t.Run("any store", func(t *testing.T) {
		t.Parallel()
		database := testdb.SQLite(t)
		inboxFor(t, database, nil)
		store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		inbox, err := middleware.NewInbox(conflicting{store}, middleware.InboxConfig{Consumer: "billing", Topic: "orders"}, nil)
		require.NoError(t, err)
		runs := 0
		processed, err := inbox.Process(t.Context(), encrypted(), func(msg *message.Message) ([]*message.Message, error) {
			runs++
			decrypt(t, msg)
			return nil, nil
		})
		require.NoError(t, err)
		require.True(t, processed)
		require.Equal(t, 3, runs)
	})
	t.Run("a serialization failure", func(t *testing.T) {
		t.Parallel()
		database := testdb.Postgres(t)
		inboxFor(t, database, nil)
		database.Exec(t, "INSERT INTO effects VALUES ('0')")
		store, err := inboxstore.New(database.Postbox(), inboxstore.Config{
			TxOptions: &sql.TxOptions{Isolation: sql.LevelRepeatableRead},
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "billing", Topic: "orders"}, nil)
		require.NoError(t, err)
		runs, before := 0, maps.Clone(encrypted().Metadata)
		processed, err := inbox.Process(t.Context(), encrypted(), func(msg *message.Message) ([]*message.Message, error) {
			runs++
			require.Equal(t, before, msg.Metadata)
			decrypt(t, msg)
			tx, _ := postbox.TxFromContext(msg.Context())
			var id string
			if err := tx.QueryRowContext(msg.Context(), "SELECT id FROM effects").Scan(&id); err != nil {
				return nil, err
			}
			if runs == 1 {
				database.Exec(t, "UPDATE effects SET id = '1'")
			}
			_, err := tx.ExecContext(msg.Context(), "UPDATE effects SET id = '2'")
			return nil, err
		})
		require.NoError(t, err)
		require.True(t, processed)
		require.Equal(t, 2, runs)
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
	})
}
