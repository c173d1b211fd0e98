package queue_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Messages of one ordering key are handled one after the other, in the order in which they were
// stored.
func ExampleSubscriber() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()
	for _, id := range []string{"paid", "packed", "sent", "paid"} { // the last one is a redelivery
		msg := message.NewMessage(id, nil)
		msg.Metadata.Set(postbox.MetadataOrderingKey, "order 1")
		fresh, err := store.Defer(ctx, "orders", inboxstore.Key{Consumer: "orders", MessageID: id}, msg)
		must(err)
		fmt.Println("stored", id, fresh)
	}

	subscriber, err := queue.NewSubscriber(store, queue.Config{}, nil)
	must(err)
	messages, err := subscriber.Subscribe(ctx, "orders")
	must(err)
	for range 3 {
		msg := <-messages
		fmt.Println("handled", msg.UUID)
		msg.Ack()
	}
	must(subscriber.Close())
	// Output:
	// stored paid true
	// stored packed true
	// stored sent true
	// stored paid false
	// handled paid
	// handled packed
	// handled sent
}

// A service may be called once at a time, whatever the number of processes that handle the queue.
func ExampleConfig_limits() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()
	for _, id := range []string{"first", "second"} {
		_, err := store.Defer(ctx, "calls", inboxstore.Key{Consumer: "calls", MessageID: id}, message.NewMessage(id, nil))
		must(err)
	}

	limits := postbox.Limits{Total: postbox.Limit{MaxConcurrent: 1}}
	subscriber, err := queue.NewSubscriber(store, queue.Config{Concurrency: 10, Limits: limits}, nil)
	must(err)
	messages, err := subscriber.Subscribe(ctx, "calls")
	must(err)
	called := <-messages
	fmt.Println("call", called.UUID)
	select {
	case msg := <-messages:
		fmt.Println("call", msg.UUID, "beside it")
	case <-time.After(50 * time.Millisecond):
		fmt.Println("the other one waits")
	}
	called.Ack()
	called = <-messages
	fmt.Println("call", called.UUID)
	called.Ack()
	must(subscriber.Close())
	// Output:
	// call first
	// the other one waits
	// call second
}

// A batch is handed out when it is full.
func ExampleBatch() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()
	reported := make(chan int)
	report := func(_ context.Context, sales []*message.Message) error {
		reported <- len(sales)
		return nil
	}

	batch, err := queue.NewBatch(store, "sales", report, queue.BatchConfig{Size: 5}, nil)
	must(err)
	ended := make(chan error, 1)
	go func() { ended <- batch.Run(ctx) }()
	for i := range 10 {
		id := fmt.Sprint(i)
		_, err := store.Defer(ctx, "sales", inboxstore.Key{Consumer: "sales", MessageID: id}, message.NewMessage(id, nil))
		must(err)
	}
	fmt.Println(<-reported, "sales")
	fmt.Println(<-reported, "sales")
	must(batch.Close())
	must(<-ended)
	// Output:
	// 5 sales
	// 5 sales
}

// exampleStore opens a store in a new SQLite file.
func exampleStore() (store *inboxstore.Store, done func()) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "postbox")
	must(err)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "queue.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	must(err)
	db.SetMaxOpenConns(1)
	database := postbox.Database{DB: db, Dialect: postbox.SQLite}
	must(postbox.Migrate(ctx, database))
	store, err = inboxstore.New(database, inboxstore.Config{}, nil)
	must(err)
	return store, func() {
		must(store.Close())
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
