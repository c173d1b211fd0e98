package receipts_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/receipts"
	"github.com/postbox-go/watermill-postbox/router"
)

// A shop expects a consumer to handle its orders, and hears that it has not. The router runs the
// receiver, so nothing else has to be started.
func ExampleAddReceiver() {
	dir, err := os.MkdirTemp("", "postbox")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	file, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	must(err)
	defer func() { _ = file.Close() }()
	file.SetMaxOpenConns(1)
	ctx, db := context.Background(), postbox.Database{DB: file, Dialect: postbox.SQLite}
	must(postbox.Migrate(ctx, db))
	broker := gochannel.NewGoChannel(gochannel.Config{}, nil)
	store, err := inboxstore.New(db, inboxstore.Config{}, nil)
	must(err)
	defer func() { _ = store.Close() }()
	outbox, err := forwarder.NewPublisher(db, forwarder.PublisherConfig{Receipts: []forwarder.Expectation{
		{Topic: "orders", Consumers: []string{"stock"}, Within: time.Millisecond},
	}}, nil)
	must(err)
	defer func() { _ = outbox.Close() }()

	r, err := router.New(nil, router.Config{Store: store, Outbox: outbox}, nil)
	must(err)
	missing := make(chan string, 1)
	_, err = receipts.AddReceiver(r, "receipts", "receipts", broker, db, receipts.Config{
		OnMissing: func(_ context.Context, params receipts.MissingParams) error {
			missing <- params.Consumer + " has not handled " + params.MessageID
			return nil
		},
	})
	must(err)
	must(postbox.InTx(ctx, file, func(ctx context.Context, _ *sql.Tx) error {
		return outbox.Publish("orders", message.NewMessageWithContext(ctx, "order 1", nil))
	}))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	fmt.Println(<-missing)
	must(r.Close())
	must(<-ended)
	// Output:
	// stock has not handled order 1
}
