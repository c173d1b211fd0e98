package middleware_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// confirmed returns the payloads of the receipts in the outbox.
func confirmed(t *testing.T, database *testdb.Database) (found []map[string]string) {
	t.Helper()
	rows, err := database.DB.QueryContext(t.Context(), "SELECT payload FROM postbox_messages WHERE topic = 'confirmations' ORDER BY id")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var payload []byte
		require.NoError(t, rows.Scan(&payload))
		var fields map[string]string
		require.NoError(t, json.Unmarshal(payload, &fields))
		found = append(found, fields)
	}
	require.NoError(t, rows.Err())
	return found
}

func withReceipts(c *middleware.InboxConfig) { c.ReceiptTopic = "confirmations" }

func TestInbox_G4_a_receipt_commits_with_the_effect(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, withReceipts)
	failing := true
	h := handler(func() error {
		if failing {
			return errHandler
		}
		return nil
	})
	handled := func(h message.HandlerFunc) (bool, error) {
		return inbox.Process(t.Context(), message.NewMessage("1", nil), h)
	}

	_, err := handled(h)
	require.ErrorIs(t, err, errHandler)
	require.Empty(t, confirmed(t, database), "the handler failed")
	_, err = handled(func(*message.Message) ([]*message.Message, error) { panic("no") })
	require.ErrorContains(t, err, "panic")
	require.Empty(t, confirmed(t, database))

	// The transaction of the user is rolled back after all of it has worked.
	failing = false
	err = postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
		fresh, err := inbox.Process(ctx, message.NewMessage("1", nil), h)
		require.True(t, fresh)
		require.NoError(t, err)
		return errHandler
	})
	require.ErrorIs(t, err, errHandler)
	require.Empty(t, confirmed(t, database))

	began := time.Now()
	for _, fresh := range []bool{true, false, false} { // delivered again and again
		done, err := handled(func(msg *message.Message) ([]*message.Message, error) {
			defer func() { msg.UUID, msg.Metadata = "changed", nil }()
			return h(msg)
		})
		require.NoError(t, err)
		require.Equal(t, fresh, done)
	}
	receipts := confirmed(t, database)
	require.Len(t, receipts, 1)
	at, err := time.Parse(time.RFC3339Nano, receipts[0]["handled_at"])
	require.NoError(t, err)
	require.False(t, at.Before(began.Truncate(0)))
	delete(receipts[0], "handled_at")
	require.Equal(t, map[string]string{"consumer": "billing", "topic": "orders", "message_id": "1"}, receipts[0])
	effects, _, _ := counts(t, database)
	require.Equal(t, 1, effects)
}

func TestInbox_publishes_no_receipt_of_a_receipt_or_of_a_dead_letter(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, withReceipts)
	receipt := message.NewMessage("receipt", nil)
	receipt.Metadata.Set("postbox_receipt", "1")
	fresh, err := inbox.Process(t.Context(), receipt, func(msg *message.Message) ([]*message.Message, error) {
		msg.Metadata = nil // which does not make it another message
		return nil, nil
	})
	require.NoError(t, err)
	require.True(t, fresh)
	_, err = inbox.Process(t.Context(), message.NewMessage("dead", nil), handler(func() error { return postbox.Permanent(errHandler) }))
	require.NoError(t, err)
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
	require.Empty(t, confirmed(t, database))
}

func TestInbox_without_a_receipt_topic_publishes_no_receipt(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, nil)
	_, err := inbox.Process(t.Context(), message.NewMessage("1", nil), handler(succeed))
	require.NoError(t, err)
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "what the handler returned")
}

func TestInbox_receipt_settings_that_cannot_work_are_errors(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.ReceiptTopic, c.Topic = "confirmations", "" })
	_, err := inbox.Process(t.Context(), message.NewMessage("1", nil), handler(succeed))
	require.ErrorContains(t, err, "set InboxConfig.Topic")
	effects, _, _ := counts(t, database)
	require.Zero(t, effects, "the handler did not run")

	_, err = middleware.NewInbox(storeStub{}, middleware.InboxConfig{ReceiptTopic: "confirmations"}, nil)
	require.ErrorContains(t, err, "ReceiptTopic: receipts need an Outbox")
	outbox, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	_, err = middleware.ProcessWith(middleware.ProcessConfig{Outbox: outbox, ReceiptTopic: "confirmations "})
	require.ErrorContains(t, err, "ReceiptTopic: the topic ends with a space")
}

// storeStub is a store that no test calls.
type storeStub struct{ middleware.InboxStore }
