package router_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

// An order is checked for fraud later, in its own time; the result goes through the outbox to
// whoever listens.
func Example() {
	dir, err := os.MkdirTemp("", "postbox")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	must(err)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	ctx := context.Background()
	must(postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: postbox.SQLite}))
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	store, err := inboxstore.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, inboxstore.Config{}, nil)
	must(err)
	defer func() { _ = store.Close() }()
	outbox, err := forwarder.NewPublisher(postbox.Database{DB: db, Dialect: postbox.SQLite}, forwarder.PublisherConfig{}, nil)
	must(err)
	defer func() { _ = outbox.Close() }()

	r, err := router.New(nil, router.Config{Store: store, Outbox: outbox, Module: "fraud"}, nil)
	must(err)
	_, err = r.AddQueueHandler("fraud", "orders", broker, "checks", func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage(postbox.NewMessageID(), []byte("order "+msg.UUID+" is fine"))}, nil
	}, router.QueueConfig{Worker: queue.Config{Unordered: true}})
	must(err)
	_, err = r.AddForwarder(postbox.Database{DB: db, Dialect: postbox.SQLite}, broker, forwarder.Config{})
	must(err)
	checked := make(chan string, 2)
	_, err = r.AddInboxHandler("shipping", "checks", broker, "", func(msg *message.Message) ([]*message.Message, error) {
		checked <- string(msg.Payload) + ", after " + msg.Metadata.Get(postbox.MetadataCausationPath)
		return nil, nil
	}, middleware.InboxConfig{})
	must(err)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-r.Running()

	for range 2 { // delivered twice
		must(broker.Publish("orders", message.NewMessage("1", nil)))
	}
	fmt.Println(<-checked)
	must(r.Close())
	must(<-ended)
	fmt.Println("and again:", len(checked))
	// Output:
	// order 1 is fine, after ["fraud/orders"]
	// and again: 0
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
