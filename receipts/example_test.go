package receipts_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/receipts"
	"github.com/postbox-go/watermill-postbox/router"
)

// A shop publishes an order, and expects billing and stock to handle it. Billing does, in another
// module with its own database. There is no stock.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, nil)
	shop, closeShop := openDatabase(ctx, "shop")
	billing, closeBilling := openDatabase(ctx, "billing")
	defer func() {
		stop()
		closeBilling()
		closeShop()
		_ = broker.Close()
	}()

	// Billing: the inbox publishes a receipt together with the effect of the handler.
	consumer := newModule(billing, broker)
	_, err := consumer.AddInboxHandler("billing", "orders", broker, "", func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("billing writes the invoice of", msg.UUID)
		return nil, nil
	}, middleware.InboxConfig{ReceiptTopic: "receipts"})
	must(err)
	defer consumer.start(ctx)()

	// The shop: the receiver is an ordinary handler.
	missing := make(chan string)
	receiver, err := receipts.NewReceiver(shop, receipts.Config{OnMissing: func(_ context.Context, params receipts.MissingParams) error {
		missing <- params.Consumer + " has not handled " + params.MessageID
		return nil
	}}, nil)
	must(err)
	producer := newModule(shop, broker)
	received := make(chan struct{}, 1)
	producer.Router.Router().AddConsumerHandler("receipts", "receipts", broker, func(msg *message.Message) error {
		defer func() { received <- struct{}{} }()
		return receiver.Handle(msg)
	})
	defer producer.start(ctx)()

	outbox, err := forwarder.NewPublisher(shop, forwarder.PublisherConfig{Receipts: []forwarder.Expectation{
		{Topic: "orders", Consumers: []string{"billing", "stock"}, Within: time.Millisecond},
	}}, nil)
	must(err)
	defer func() { _ = outbox.Close() }()
	must(postbox.InTx(ctx, shop.DB, func(ctx context.Context, _ *sql.Tx) error {
		return outbox.Publish("orders", message.NewMessageWithContext(ctx, "order 1", nil))
	}))

	<-received
	go func() { _ = receiver.Run(ctx) }()
	fmt.Println(<-missing)
	must(receiver.Close())

	operator, err := admin.New(shop, admin.Config{}, nil)
	must(err)
	known, _, err := operator.Receipts(ctx, admin.Filter{MessageID: "order 1"})
	must(err)
	slices.SortFunc(known, func(a, b admin.Receipt) int { return len(b.Consumer) - len(a.Consumer) })
	for _, r := range known {
		fmt.Println(r.Consumer, r.Status)
	}
	// Output:
	// billing writes the invoice of order 1
	// stock has not handled order 1
	// billing RECEIVED
	// stock MISSING
}

// module is a router with a forwarder, and what it needs.
type module struct {
	*router.Router

	store  *inboxstore.Store
	outbox *forwarder.Publisher
}

func newModule(db postbox.Database, broker *gochannel.GoChannel) module {
	store, err := inboxstore.New(db, inboxstore.Config{}, nil)
	must(err)
	outbox, err := forwarder.NewPublisher(db, forwarder.PublisherConfig{}, nil)
	must(err)
	r, err := router.New(nil, router.Config{Store: store, Outbox: outbox}, nil)
	must(err)
	_, err = r.AddForwarder(db, broker, forwarder.Config{})
	must(err)
	return module{r, store, outbox}
}

// start runs the module, and returns what ends it.
func (m module) start(ctx context.Context) (end func()) {
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	<-m.Running()
	return func() {
		must(m.Close())
		must(<-ended)
		must(m.store.Close())
		must(m.outbox.Close())
	}
}

// openDatabase makes a database with the tables of Postbox.
func openDatabase(ctx context.Context, name string) (db postbox.Database, remove func()) {
	dir, err := os.MkdirTemp("", name)
	must(err)
	file, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "module.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	must(err)
	file.SetMaxOpenConns(1)
	db = postbox.Database{DB: file, Dialect: postbox.SQLite}
	must(postbox.Migrate(ctx, db))
	return db, func() {
		_ = file.Close()
		_ = os.RemoveAll(dir)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
