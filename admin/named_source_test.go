package admin_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// The inbox stands outside a router, so it does not know from which topic a message came, and a
// producer says so in the metadata. A queue, its receipts and operators would believe that.
func TestReplay_a_producer_does_not_name_the_source_of_its_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		store := inboxtest.StoreFor(t, database.Migrate(t), database.DB, nil)
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
		did, err := operator.Replay(t.Context(), admin.Filter{Target: admin.Inbox("billing"), All: true}, admin.Again{To: admin.Queue("work")})
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
