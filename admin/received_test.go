package admin_test

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
	listed, _, err := operator.Messages(t.Context(), admin.Filter{Target: inbox, Status: admin.Done})
	require.NoError(t, err)
	for _, m := range listed {
		read, err := operator.Message(t.Context(), admin.Filter{Target: inbox, ID: m.ID})
		require.NoError(t, err)
		messages = append(messages, read)
	}
	return messages
}

// within runs fn in a transaction of the user, as that of a subscriber, and commits.
func within(t *testing.T, database *testdb.Database, fn func(ctx context.Context)) {
	t.Helper()
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	fn(postbox.ContextWithTx(t.Context(), tx))
	require.NoError(t, tx.Commit())
}

// effect is a handler that writes through the transaction in its context, and then returns err.
func effect(t *testing.T, err error) func(ctx context.Context) error {
	t.Helper()
	return func(ctx context.Context) error {
		tx, ok := postbox.TxFromContext(ctx)
		if !ok {
			return errors.New("no transaction in the context")
		}
		if _, execErr := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('x')"); execErr != nil {
			t.Errorf("write effect: %s", execErr)
		}
		return err
	}
}

// In a transaction of its own, and in one of the user.
func TestStore_G4_a_received_message_is_kept_with_the_effect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "CREATE TABLE effects (id VARCHAR(100))")
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
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM effects"))
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
			fresh, err := store.OnceReceived(t.Context(), k, r, func(context.Context) error { return nil })
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
		_, err := store.OnceReceived(t.Context(), inboxstore.Key{Consumer: strings.Repeat("\x00long name ", 100), MessageID: "1"}, received("1", ""), func(context.Context) error { return nil })
		require.NoError(t, err, "any name of a consumer")
	})
}
