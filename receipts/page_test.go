package receipts_test

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/receipts"
	"github.com/postbox-go/watermill-postbox/router"
)

// The code of docs/receipts.md, which needs only to compile.
var _ = []any{pageConsumer, pageProducer}

func pageConsumer(store *inboxstore.Store, outbox message.Publisher, logger watermill.LoggerAdapter) (*middleware.Inbox, error) {
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Outbox: outbox, ReceiptTopic: "receipts"}, logger)
	return inbox, err
}

func pageProducer(postboxRouter *router.Router, subscriber message.Subscriber, database postbox.Database, logger watermill.LoggerAdapter) (*receipts.Receiver, *forwarder.Publisher) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var tellTheShop func(context.Context, receipts.MissingParams) error
	receiver, err := receipts.AddReceiver(postboxRouter, "receipts", "receipts", subscriber, database, receipts.Config{OnMissing: tellTheShop})
	must(err)
	outbox, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{
		Receipts: []forwarder.Expectation{{Topic: "orders", Consumers: []string{"billing", "stock"}, Within: 5 * time.Minute}},
	}, logger)
	must(err)
	return receiver, outbox
}
