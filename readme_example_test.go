package postbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// OrderPlaced is an event of the examples.
type OrderPlaced struct {
	OrderID  string
	Customer string
}

// Produce: the business row and the message are one commit.
func Example_produce() {
	db, database, done := exampleDatabase("CREATE TABLE orders (id TEXT)")
	defer done()
	outbox, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{}, nil)
	must(err)
	defer outbox.Close()
	bus, err := cqrs.NewEventBusWithConfig(outbox, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "orders", nil },
		Marshaler:            cqrs.JSONMarshaler{},
	})
	must(err)
	ctx := context.Background()

	err = postbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ('1')`); err != nil {
			return err
		}
		return bus.Publish(ctx, OrderPlaced{OrderID: "1"}) // the transaction travels in ctx
	})
	must(err)

	fmt.Println(count(db, "orders"), "order,", count(db, "postbox_messages"), "message")
	// Output: 1 order, 1 message
}

// Relay: from the outbox to any Watermill publisher.
func Example_relay() {
	_, database, done := exampleDatabase("")
	defer done()
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	ctx, stop := context.WithCancel(context.Background())
	received, err := broker.Subscribe(ctx, "orders")
	must(err)
	outbox, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{AllowAutocommit: true}, nil)
	must(err)
	defer outbox.Close()
	must(outbox.Publish("orders", message.NewMessage("1", []byte("hello"))))
	logger := watermill.NopLogger{}

	fwd, err := forwarder.New(database, broker, forwarder.Config{}, logger)
	must(err)
	go func() { must(fwd.Run(ctx)) }()

	msg := <-received
	fmt.Println(string(msg.Payload))
	msg.Ack()
	stop()
	must(fwd.Close())
	// Output: hello
}

// Consume once: a middleware on a router that you have.
func Example_consumeOnce() {
	db, database, done := exampleDatabase("CREATE TABLE payments (order_id TEXT)")
	defer done()
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	logger := watermill.NopLogger{}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	must(err)

	store, err := inboxstore.New(database, inboxstore.Config{}, logger)
	must(err)
	defer store.Close()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{}, logger)
	must(err)
	handler := router.AddConsumerHandler("payments", "orders", broker, func(msg *message.Message) error {
		tx, found := postbox.TxFromContext(msg.Context()) // commits together with the claim of the message
		if !found {
			return postbox.ErrNoTransaction
		}
		_, err := tx.ExecContext(msg.Context(), `INSERT INTO payments VALUES ($1)`, string(msg.Payload))
		return err
	})
	handler.AddMiddleware(inbox.Middleware)

	go router.Run(context.Background())
	<-router.Running()
	for range 3 { // the broker delivers it three times
		must(broker.Publish("orders", message.NewMessage("0190a2d4-1111-7000-8000-000000000001", []byte("order 1"))))
	}
	fmt.Println(count(db, "payments"), "payment")
	must(router.Close())
	// Output: 1 payment
}

// Consume later: store and ack now, handle from the inbox with the same kind of handler.
func Example_consumeLater() {
	db, database, done := exampleDatabase("CREATE TABLE checks (order_id TEXT)")
	defer done()
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	logger := watermill.NopLogger{}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	must(err)
	store, err := inboxstore.New(database, inboxstore.Config{}, logger)
	must(err)
	defer store.Close()

	inboxSubscriber, err := queue.NewSubscriber(store, queue.Config{Transactional: true}, logger)
	must(err)
	stored := router.AddConsumerHandler("fraud-store", "orders", broker, func(*message.Message) error { return nil })
	stored.AddMiddleware(middleware.Defer(store, "fraud")) // acked as soon as it is committed
	check := router.AddConsumerHandler("fraud-check", "fraud", inboxSubscriber, func(msg *message.Message) error {
		tx, found := postbox.TxFromContext(msg.Context()) // commits together with the end of the message
		if !found {
			return postbox.ErrNoTransaction // the queue is not Transactional
		}
		_, err := tx.ExecContext(msg.Context(), `INSERT INTO checks VALUES ($1)`, string(msg.Payload))
		return err
	})
	check.AddMiddleware(middleware.Process) // the queue hears why a handler fails

	go router.Run(context.Background())
	<-router.Running()
	must(broker.Publish("orders", message.NewMessage("1", []byte("order 1"))))
	deadline := time.After(time.Minute)
	for count(db, "checks") == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			panic("the message is not handled")
		}
	}
	must(router.Close())
	fmt.Println(count(db, "checks"), "check,", count(db, "postbox_messages"), "messages")
	// Output: 1 check, 0 messages
}

// exampleDatabase opens a new SQLite file with the tables of Postbox.
func exampleDatabase(schema string) (db *sql.DB, database postbox.Database, done func()) {
	dir, err := os.MkdirTemp("", "postbox")
	must(err)
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "example.db")+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	must(err)
	db.SetMaxOpenConns(1)
	ctx := context.Background()
	database = postbox.Database{DB: db, Dialect: postbox.SQLite}
	must(postbox.Migrate(ctx, database))
	_, err = db.ExecContext(ctx, schema)
	must(err)
	return db, database, func() { _ = db.Close(); _ = os.RemoveAll(dir) }
}

func count(db *sql.DB, table string) (n int) {
	must(db.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM "+table).Scan(&n))
	return n
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
