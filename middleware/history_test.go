package middleware_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// A message that is given up is a dead letter and not in the history; what the handler does to its
// message is not kept.
func TestInbox_G4_keeps_messages_as_they_were_delivered(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.History = time.Hour })
		changes := func(fail func() error) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				copy(msg.Payload, "changed")
				msg.Metadata.Set("about", "changed")
				return handler(fail)(msg)
			}
		}
		for id, fail := range map[string]func() error{"good": succeed, "bad": func() error { return postbox.Permanent(errHandler) }} {
			for range 2 { // the second one is a duplicate
				msg := message.NewMessage(id, []byte("delivered"))
				msg.Metadata.Set("about", "delivered")
				_, err := inbox.Process(t.Context(), msg, changes(fail))
				require.NoError(t, err)
			}
		}
		effects, receipts, dead := counts(t, database)
		require.Equal(t, [3]int{1, 1, 1}, [3]int{effects, receipts, dead})
		operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
		require.NoError(t, err)
		kept, _, err := operator.Messages(t.Context(), admin.Filter{Target: admin.Inbox("billing"), Status: admin.Done})
		require.NoError(t, err)
		require.Len(t, kept, 1)
		read, err := operator.Message(t.Context(), admin.Filter{Target: admin.Inbox("billing"), ID: kept[0].ID})
		require.NoError(t, err)
		require.Equal(t, []string{"good", "orders", "delivered", "delivered"}, []string{read.MessageID, read.Topic, string(read.Payload), read.Metadata["about"]})
	})
}

func TestNewInbox_refuses_a_history_that_cannot_be_kept(t *testing.T) {
	t.Parallel()
	_, err := middleware.NewInbox(newAnyStore(), middleware.InboxConfig{History: time.Hour}, nil)
	require.ErrorContains(t, err, "History: the store keeps no messages")
	_, err = middleware.NewInbox(newAnyStore(), middleware.InboxConfig{History: -1, HistoryPayload: -1}, nil)
	require.ErrorContains(t, err, "History: -1ns is negative")
	require.ErrorContains(t, err, "HistoryPayload: -1 bytes is negative")
	_, err = middleware.NewInbox(newAnyStore(), middleware.InboxConfig{HistoryPayload: 1}, nil)
	require.ErrorContains(t, err, "HistoryPayload: set History too")
}

// The inbox stands outside a router, so it does not know from which topic a message came, and a
// producer says so in the metadata. A queue, its receipts and operators would believe that.
func TestReplay_a_producer_does_not_name_the_source_of_its_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		store := storeWith(t, database, nil)
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "billing", Topic: "orders", History: time.Hour}, nil)
		require.NoError(t, err)
		msg := message.NewMessage("a", []byte("x"))
		msg.Metadata.Set(postbox.MetadataSourceTopic, "victim")
		msg.Metadata.Set(spool.KafkaKey, "key of another")
		msg.Metadata.Set("own", "yes")
		_, err = inbox.Process(t.Context(), msg, func(*message.Message) ([]*message.Message, error) { return nil, nil })
		require.NoError(t, err)
		_, err = store.Defer(t.Context(), "work", inboxstore.Key{Consumer: "work", MessageID: "first"}, message.NewMessage("first", nil))
		require.NoError(t, err)
		operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
		require.NoError(t, err)
		did, err := operator.Replay(t.Context(), admin.Filter{Target: admin.Inbox("billing"), All: true}, admin.ReplayParams{To: admin.Queue("work")})
		require.NoError(t, err)
		require.Equal(t, 1, did.Done)
		var encoded []byte
		query := database.Bind("SELECT metadata FROM postbox_messages WHERE message_id = ?")
		require.NoError(t, database.DB.QueryRowContext(t.Context(), query, []byte("a")).Scan(&encoded))
		metadata := map[string]string{}
		require.NoError(t, json.Unmarshal(encoded, &metadata))
		require.NotContains(t, metadata, postbox.MetadataSourceTopic)
		require.NotContains(t, metadata, spool.KafkaKey)
		require.Equal(t, "yes", metadata["own"])
	})
}
