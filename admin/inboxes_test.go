package admin_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

var inbox = admin.Inbox("billing")

// received lets an inbox handle messages, and keep them.
func (b *bench) received(ids ...string) {
	b.Helper()
	store, err := inboxstore.New(b.database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(b, err)
	defer func() { require.NoError(b, store.Close()) }()
	for i, id := range ids {
		msg := message.NewMessage(id, []byte("payload of "+id))
		msg.Metadata.Set(postbox.MetadataOrderingKey, fmt.Sprint("key ", i%2))
		key := inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: id}
		_, err := store.OnceReceived(b.Context(), key, inboxstore.Received{Message: msg, History: time.Hour, MaxPayload: 1000},
			func(context.Context) error { return nil })
		require.NoError(b, err)
	}
	b.database.Exec(b.T, "UPDATE postbox_history SET source_topic = 'orders'") // as if a router had delivered them
}

func TestReplay_G4_publishes_what_an_inbox_has_received(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		b.received("1", "2", "3", "4", strings.Repeat("5", 2000))
		list, _, err := b.admin.Messages(t.Context(), admin.Filter{Target: inbox, Status: admin.Done, Key: "key 0"})
		require.NoError(t, err)
		require.Len(t, list, 3)
		did, err := b.admin.Replay(t.Context(), admin.Filter{Target: inbox, All: true, Limit: 2}, admin.Again{To: b.target})
		require.NoError(t, err)
		did, err = b.admin.Replay(t.Context(), admin.Filter{Target: inbox, All: true, After: did.Cursor}, admin.Again{To: b.target})
		require.NoError(t, err)
		require.Equal(t, []int{2, 1}, []int{did.Done, did.Skipped}, "a message without its payload is not replayed")
		copies := b.messages(admin.Filter{})
		require.Len(t, copies, 4)
		for _, m := range copies {
			read, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, ID: m.ID})
			require.NoError(t, err)
			require.Equal(t, "orders", m.Topic)
			require.Equal(t, "payload of "+m.MessageID, string(read.Payload))
			require.Len(t, read.Metadata["postbox_replayed_from"], 16)
		}
	})
}

// The handler of a queue gets the message whatever the inbox remembers, and sees from which topic
// it came.
func TestReplay_puts_what_an_inbox_has_received_into_a_queue(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	_, err := spool.New(b.statements, spool.QueuePrefix+"repair").Open(t.Context(), b.database.DB)
	require.NoError(t, err)
	b.received("1", "2")
	target := admin.Queue("repair")
	did, err := b.admin.Replay(t.Context(), admin.Filter{Target: inbox, MessageID: "2"}, admin.Again{To: target, NewIDs: true})
	require.NoError(t, err)
	require.Equal(t, 1, did.Done)
	found, _, err := b.admin.Messages(t.Context(), admin.Filter{Target: target})
	require.NoError(t, err)
	read, err := b.admin.Message(t.Context(), admin.Filter{Target: target, ID: found[0].ID})
	require.NoError(t, err)
	require.Equal(t, []any{"repair", "orders", "key 1", "payload of 2"}, []any{read.Topic, read.Metadata[postbox.MetadataSourceTopic], read.Key, string(read.Payload)})
	require.NotEqual(t, "2", read.MessageID)
}

func TestInbox_refuses_what_only_messages_that_wait_can_have(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.received("1")
	ctx := t.Context()
	for name, err := range map[string]error{
		"pause":     b.admin.Pause(ctx, admin.Filter{Target: inbox, All: true}),
		"pause key": b.admin.Pause(ctx, admin.Filter{Target: inbox, Key: "key 0"}),
		"topic":     b.admin.Pause(ctx, admin.Filter{Target: inbox, Topic: "orders"}),
		"run":       errorOf(b.admin.Reschedule(ctx, admin.Filter{Target: inbox, ID: 1}, time.Time{})),
	} {
		require.ErrorIs(t, err, admin.ErrInvalid, name)
		require.ErrorContains(t, err, `inbox "billing"`, name)
	}
	for name, to := range map[string]admin.Target{"itself": {}, "another": admin.Inbox("shipping")} {
		_, err := b.admin.Replay(ctx, admin.Filter{Target: inbox, All: true}, admin.Again{To: to})
		require.ErrorContains(t, err, "use an outbox that publishes the messages, or a queue", name)
	}
	_, _, err := b.admin.DeadLetters(ctx, admin.Filter{Target: inbox})
	require.ErrorContains(t, err, "to choose the letters of an inbox, set Consumer")
	waiting, _, err := b.admin.Messages(ctx, admin.Filter{Target: inbox})
	require.NoError(t, err)
	require.Empty(t, waiting)
	require.Equal(t, []any{"billing", true, false, `inbox "billing"`}, []any{inbox.Name, inbox.Kind == "inbox", inbox.Kind == "queue", inbox.String()})
}

func TestInboxes_have_dead_letters_and_a_history(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.received("1", "2")
		b.buryInbox("1", 0)
		b.exec("UPDATE postbox_dead_letters SET consumer = 'shipping'")
		b.buryInbox("2", 0)
		require.NoError(t, storeSettings(t.Context(), b.admin, inbox, admin.Settings{History: time.Minute}))
		b.outboxID()
		queues, err := b.admin.Queues(t.Context())
		require.NoError(t, err)
		require.Len(t, queues, 3)
		require.Equal(t, b.target, queues[0].Target)
		require.Equal(t, []admin.QueueInfo{
			{Target: inbox, Dead: 1, DeadLately: 1, HasHistory: true, Done: 2, Settings: admin.Settings{History: time.Minute}},
			{Target: admin.Inbox("shipping"), Dead: 1, DeadLately: 1},
		}, queues[1:])
	})
}

func TestChangeSettings_refuse_settings_that_an_inbox_does_not_have(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.received("1")
	require.NoError(t, storeSettings(t.Context(), b.admin, inbox, admin.Settings{History: 2 * time.Hour}))
	for _, settings := range []admin.Settings{{PerSecond: 3}, {History: time.Hour, Retention: time.Hour}} {
		err := storeSettings(t.Context(), b.admin, inbox, settings)
		require.ErrorIs(t, err, admin.ErrInvalid)
		require.ErrorContains(t, err, "no setting but History")
	}
	inboxes, err := b.admin.Queues(t.Context())
	require.NoError(t, err)
	require.Equal(t, admin.Settings{History: 2 * time.Hour}, inboxes[0].Settings, "what is stored stays")
}
