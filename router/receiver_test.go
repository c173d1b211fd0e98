package router_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/receipts"
)

func TestRouter_runs_both_parts_of_a_receiver(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newService(t, database, nil)
		missing := make(chan string, 1)
		receiver, err := s.router.AddReceiver("receipts", "handled", s.broker, database.Postbox(), receipts.Config{
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
		require.NoError(t, forwarder.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			return outbox.Publish("orders", message.NewMessageWithContext(ctx, "1", nil))
		}))

		stop := s.run()
		select {
		case consumer := <-missing:
			require.Equal(t, "stock", consumer)
		case <-time.After(patience):
			require.Fail(t, "the missing receipt was not told")
		}
		operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
		require.NoError(t, err)
		s.eventually("the receipt is stored", func() bool {
			found, err := operator.Receipts(t.Context(), "1")
			require.NoError(t, err)
			for _, receipt := range found {
				if receipt.Consumer == "billing" {
					return receipt.Status == admin.ReceiptReceived
				}
			}
			return false
		})
		require.ErrorContains(t, receiver.Run(t.Context()), "already running")
		stop()
	})
}

func TestRouter_refuses_a_receiver_that_cannot_work(t *testing.T) {
	t.Parallel()
	s := newService(t, testdb.SQLite(t), nil)
	db := s.database.Postbox()
	_, err := s.router.AddReceiver("receipts", "handled", nil, db, receipts.Config{Retention: -1})
	require.ErrorContains(t, err, `add receiver "receipts"`)
	require.ErrorContains(t, err, "Retention: -1ns is less than 1m0s")
	require.ErrorContains(t, err, "the subscriber is nil")
	_, err = s.router.AddReceiver("", "", s.broker, db, receipts.Config{})
	require.ErrorContains(t, err, "the name is empty")
	require.ErrorContains(t, err, "the topic is empty")
	_, err = s.router.AddReceiver("receipts", "handled", s.broker, db, receipts.Config{})
	require.NoError(t, err)
	for _, name := range []string{"receipts", "receipts_overdue"} {
		_, err = s.router.AddReceiver(name, "handled", s.broker, db, receipts.Config{})
		require.ErrorContains(t, err, "has a handler \""+name+"\" already")
	}
	require.Len(t, s.router.Router().Handlers(), 2, "a refused one leaves nothing behind")
}
