package middleware_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
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
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_history"))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE message_id = ? AND topic = 'orders' AND payload = ? AND metadata = ?",
			[]byte("good"), []byte("delivered"), []byte(`{"about":"delivered"}`)))
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
