package receipts_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/receipts"
	"github.com/postbox-go/watermill-postbox/router"
)

// Two modules with a database each. The handlers fail at first, all messages come twice, and one
// message fails for ever in one handler.
func TestReceipts_G4_two_modules_confirm_each_effect_that_commits(t *testing.T) {
	t.Parallel()
	broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 100}, nil)
	t.Cleanup(func() { _ = broker.Close() })
	shop := newShop(t, broker)
	startConsumers(t, broker)

	ids := []string{"1", "2", "bad"}
	shop.publish("orders", ids...)
	done := []string{"orders billing received", "orders report received", "orders stock received"}
	require.Eventually(t, func() bool {
		return slices.Equal(done, shop.receipts("1")) && slices.Equal(done, shop.receipts("2")) &&
			slices.Equal([]string{"orders billing awaited", "orders report received", "orders stock received"}, shop.receipts("bad"))
	}, enginetest.Patience, testdb.PollPause)

	shop.database.Exec(t, "UPDATE postbox_receipts SET due_at = due_at - 3600000000")
	var calls calls
	shop.round(shop.receiver(receipts.Config{OnMissing: calls.onMissing}))
	require.Equal(t, []string{"orders bad billing"}, calls.told)
}

// run runs a router until the test ends.
func run(t *testing.T, r *router.Router) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		require.NoError(t, <-ended)
	})
	<-r.Running()
}

// newShop starts the module that publishes orders and awaits receipts.
func newShop(t *testing.T, broker *gochannel.GoChannel) *producer {
	t.Helper()
	p := newProducer(t, testdb.SQLite(t))
	outbox, err := forwarder.NewPublisher(p.database.Postbox(), forwarder.PublisherConfig{Receipts: []forwarder.Expectation{
		{Topic: "orders", Consumers: []string{"billing", "stock", "report"}, Within: time.Hour},
	}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = outbox.Close() })
	p.outbox = outbox
	store, err := inboxstore.New(p.database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	module, err := router.New(nil, router.Config{Store: store}, nil)
	require.NoError(t, err)
	_, err = module.AddForwarder(p.database.Postbox(), twice{broker}, forwarder.Config{})
	require.NoError(t, err)
	module.Router().AddConsumerHandler("receipts", "receipts", broker, p.receiver(receipts.Config{}).Handle)
	run(t, module)
	return p
}

// twice delivers each message twice.
type twice struct{ message.Publisher }

func (b twice) Publish(topic string, messages ...*message.Message) error {
	return errors.Join(b.Publisher.Publish(topic, messages...), b.Publisher.Publish(topic, messages...))
}

// startConsumers starts the module that handles orders in three ways.
func startConsumers(t *testing.T, broker *gochannel.GoChannel) {
	t.Helper()
	database := testdb.SQLite(t).Migrate(t)
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	outbox, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = outbox.Close() })
	module, err := router.New(nil, router.Config{Store: store, Outbox: outbox}, nil)
	require.NoError(t, err)
	_, err = module.AddForwarder(database.Postbox(), twice{broker}, forwarder.Config{})
	require.NoError(t, err)

	retry := postbox.RetryProfile{Base: time.Millisecond, Cap: time.Millisecond}
	_, err = module.AddInboxHandler("billing", "orders", broker, "", failsFirst(), middleware.InboxConfig{ReceiptTopic: "receipts", Retry: retry})
	require.NoError(t, err)
	_, err = module.AddQueueHandler("stock", "orders", broker, "", failsFirst("bad"), router.QueueConfig{
		ReceiptTopic: "receipts", Worker: queue.Config{Retry: retry},
	})
	require.NoError(t, err)
	confirm := receipts.ConfirmParams{Outbox: outbox, ReceiptTopic: "receipts", Consumer: "report"}
	_, err = module.AddBatchHandler("report", "orders", broker, func(ctx context.Context, batch []*message.Message) error {
		return receipts.Confirm(ctx, confirm, batch...)
	}, router.BatchConfig{Batch: queue.BatchConfig{Size: 3, Age: time.Millisecond, Worker: queue.Config{Transactional: true}}})
	require.NoError(t, err)
	run(t, module)
}

// failsFirst returns a handler that fails once for each message, and for ever for the message "bad"
// unless that is to be spared.
func failsFirst(spared ...string) message.HandlerFunc {
	var mu sync.Mutex
	failed := map[string]bool{}
	return func(msg *message.Message) ([]*message.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		if msg.UUID == "bad" && !slices.Contains(spared, "bad") {
			return nil, postbox.Permanent(errRefused)
		}
		if !failed[msg.UUID] {
			failed[msg.UUID] = true
			return nil, errRefused
		}
		return nil, nil
	}
}

func TestConfirm_mistakes_are_permanent_errors(t *testing.T) {
	t.Parallel()
	out := &capture{}
	err := receipts.Confirm(t.Context(), receipts.ConfirmParams{})
	require.ErrorIs(t, err, postbox.ErrPermanent)
	for _, field := range []string{"Outbox", "ReceiptTopic", "Consumer"} {
		require.ErrorContains(t, err, field)
	}
	params := receipts.ConfirmParams{Outbox: out, ReceiptTopic: "receipts", Consumer: "report"}
	err = receipts.Confirm(t.Context(), params, message.NewMessage("1", nil))
	require.ErrorIs(t, err, postbox.ErrPermanent)
	require.ErrorContains(t, err, "SourceTopic")
	params.SourceTopic = "orders"
	err = receipts.Confirm(t.Context(), params, message.NewMessage("1", nil), nil)
	require.ErrorIs(t, err, postbox.ErrPermanent)
	require.ErrorContains(t, err, "message 2 of 2 is nil")
	require.Empty(t, out.messages)
	err = receipts.Confirm(t.Context(), params, message.NewMessage("", nil))
	require.ErrorIs(t, err, postbox.ErrPermanent)
	require.ErrorContains(t, err, "the message id is missing")
	require.NoError(t, receipts.Confirm(t.Context(), params, receiptOf(t, "orders", "1", "billing", time.Now())))
	require.Empty(t, out.messages, "no receipt of a receipt")
	require.NoError(t, receipts.Confirm(t.Context(), params, message.NewMessage("1", nil), message.NewMessage("2", nil)))
	require.Len(t, out.messages, 2)
}
