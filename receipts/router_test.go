package receipts_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/receipts"
	"github.com/postbox-go/watermill-postbox/router"
)

func TestRouter_runs_both_parts_of_a_receiver(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(t, database)
		missing := make(chan string, 1)
		receiver, err := receipts.AddReceiver(s.router, "receipts", "handled", s.broker, database.Postbox(), receipts.Config{
			OnMissing: func(_ context.Context, params receipts.MissingParams) error {
				missing <- params.Consumer
				return nil
			},
		})
		require.NoError(t, err)
		_, err = s.router.AddInboxHandler("billing", "orders", s.broker, "", func(*message.Message) ([]*message.Message, error) {
			return nil, nil
		}, middleware.InboxConfig{ReceiptTopic: "handled"})
		require.NoError(t, err)
		_, err = s.router.AddForwarder(database.Postbox(), s.broker, forwarder.Config{})
		require.NoError(t, err)
		outbox, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{Receipts: []forwarder.Expectation{
			{Topic: "orders", Consumers: []string{"billing"}, Within: time.Hour}, {Topic: "orders", Consumers: []string{"stock"}, Within: time.Millisecond},
		}}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, outbox.Close()) })
		require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			return outbox.Publish("orders", message.NewMessageWithContext(ctx, "1", nil))
		}))

		stop := s.run()
		select {
		case consumer := <-missing:
			require.Equal(t, "stock", consumer)
		case <-time.After(enginetest.Patience):
			require.Fail(t, "the missing receipt was not told")
		}
		operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
		require.NoError(t, err)
		s.eventually("the receipt is stored", func() bool {
			found, _, err := operator.Receipts(t.Context(), admin.Filter{MessageID: "1"})
			require.NoError(t, err)
			for _, receipt := range found {
				if receipt.Consumer == "billing" {
					return receipt.Status == "RECEIVED"
				}
			}
			return false
		})
		require.ErrorContains(t, receiver.Run(t.Context()), "already running")
		stop()
	})
}

// Who may publish to one topic gives a message the id of one of another topic, and names that topic
// in its metadata. The receipts of its consumers are about the topic that it came from.
func TestRouter_a_receipt_forged_through_metadata_has_no_effect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(t, database)
		_, err := receipts.AddReceiver(s.router, "receipts", "handled", s.broker, database.Postbox(), receipts.Config{})
		require.NoError(t, err)
		_, err = s.router.AddInboxHandler("billing", "chat", s.broker, "", noop, middleware.InboxConfig{ReceiptTopic: "handled"})
		require.NoError(t, err)
		_, err = s.router.AddQueueHandler("stock", "chat", s.broker, "", noop, router.QueueConfig{ReceiptTopic: "handled"})
		require.NoError(t, err)
		_, err = s.router.AddForwarder(database.Postbox(), s.broker, forwarder.Config{})
		require.NoError(t, err)
		outbox, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{Receipts: []forwarder.Expectation{
			{Topic: "orders", Consumers: []string{"billing", "stock"}, Within: time.Hour},
		}}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, outbox.Close()) })
		require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			return outbox.Publish("orders", message.NewMessageWithContext(ctx, "1", nil))
		}))
		operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
		require.NoError(t, err)
		known := func() []string {
			found, _, err := operator.Receipts(t.Context(), admin.Filter{MessageID: "1"})
			require.NoError(t, err)
			lines := make([]string, len(found))
			for i, r := range found {
				lines[i] = r.Topic + " " + r.Consumer + " " + strings.ToLower(r.Status)
			}
			slices.Sort(lines)
			return lines
		}
		require.Equal(t, []string{"orders billing awaited", "orders stock awaited"}, known())

		stop := s.run()
		forged := message.NewMessage("1", nil)
		for _, name := range []string{postbox.MetadataSourceTopic, "topic", "event_name", "received_topic"} {
			forged.Metadata.Set(name, "orders")
		}
		require.NoError(t, s.broker.Publish("chat", forged))
		s.eventually("both receipts of the forged message are there", func() bool { return len(known()) == 4 })
		require.Equal(t, []string{
			"chat billing received", "chat stock received", "orders billing awaited", "orders stock awaited",
		}, known())
		stop()
	})
}

func TestRouter_refuses_a_receiver_that_cannot_work(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t))
	db := s.database.Postbox()
	_, err := receipts.AddReceiver(s.router, "receipts", "handled", nil, db, receipts.Config{Retention: -1})
	require.ErrorContains(t, err, `add receiver "receipts"`)
	require.ErrorContains(t, err, "Retention: -1ns is less than 1m0s")
	require.ErrorContains(t, err, "the subscriber is nil")
	_, err = receipts.AddReceiver(s.router, "", "", s.broker, db, receipts.Config{})
	require.ErrorContains(t, err, "the name is empty")
	require.ErrorContains(t, err, "the topic is empty")
	_, err = receipts.AddReceiver(s.router, "receipts", "handled", s.broker, db, receipts.Config{})
	require.NoError(t, err)
	for _, name := range []string{"receipts", "receipts_overdue"} {
		_, err = receipts.AddReceiver(s.router, name, "handled", s.broker, db, receipts.Config{})
		require.ErrorContains(t, err, "has a handler \""+name+"\" already")
	}
	require.Len(t, s.router.Router().Handlers(), 2, "a refused one leaves nothing behind")
}
