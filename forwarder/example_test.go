package forwarder_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// An outbox from end to end: a transaction that rolls back leaves nothing, one that commits is
// forwarded.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	db, remove := openShop(ctx)
	defer remove()

	broker := gochannel.NewGoChannel(gochannel.Config{}, nil)
	received, err := broker.Subscribe(ctx, "orders")
	must(err)
	fwd, err := forwarder.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, broker, forwarder.Config{}, nil)
	must(err)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(ctx) }()

	outbox, err := forwarder.NewPublisher(postbox.Database{DB: db, Dialect: postbox.SQLite}, forwarder.PublisherConfig{}, nil)
	must(err)
	defer func() { _ = outbox.Close() }()
	for _, order := range []string{"refused", "accepted"} {
		err := postbox.InTx(ctx, db, func(ctx context.Context, _ *sql.Tx) error {
			msg := message.NewMessage(postbox.NewMessageID(), []byte(order))
			msg.SetContext(ctx)
			if err := outbox.Publish("orders", msg); err != nil {
				return err
			}
			if order == "refused" {
				return fmt.Errorf("no stock")
			}
			return nil
		})
		fmt.Println(order, err)
	}

	msg := <-received
	msg.Ack()
	fmt.Println("forwarded:", string(msg.Payload))
	must(fwd.Close())
	must(<-ended)
	// Output:
	// refused no stock
	// accepted <nil>
	// forwarded: accepted
}

// openShop makes a database with the tables of Postbox.
func openShop(ctx context.Context) (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "postbox")
	must(err)
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	must(err)
	db.SetMaxOpenConns(1)
	must(postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: postbox.SQLite}))
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
