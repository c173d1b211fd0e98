package admin_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	_ "modernc.org/sqlite"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/queue"
)

func ExampleAdmin_Pause() {
	if err := pauseQueue(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// queue "fraud": 2 pending, paused: true
	// order-1 is READY
	// order-2 is READY
	// handled order-1
	// handled order-2
	// queue "fraud": written 2, pending 0, done 2
}

func pauseQueue(ctx context.Context) error {
	db, err := sql.Open("sqlite", "file:admin_pause_example?mode=memory&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // SQLite has one writer, and this database ends with its connection
	if err := postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: postbox.SQLite}); err != nil {
		return err
	}
	store, err := inboxstore.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, inboxstore.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	for _, id := range []string{"order-1", "order-2"} { // what middleware.Defer does with what a broker delivers
		msg := message.NewMessage(id, []byte("{}"))
		msg.Metadata.Set(postbox.MetadataOrderingKey, "customer-7")
		if _, err := store.Defer(ctx, "fraud", inboxstore.Key{Consumer: "fraud", Topic: "orders", MessageID: id}, msg); err != nil {
			return err
		}
	}

	operator, err := admin.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, admin.Config{}, nil)
	if err != nil {
		return err
	}
	fraud := admin.Queue("fraud")
	if err := operator.Pause(ctx, admin.Filter{Target: fraud, All: true}); err != nil {
		return err
	}
	_, err = operator.ChangeSettings(ctx, fraud, func(stored *admin.Settings) error {
		stored.Concurrency, stored.History = 4, 24*time.Hour
		return nil
	})
	if err != nil {
		return err
	}
	subscriber, err := queue.NewSubscriber(store, queue.Config{}, nil)
	if err != nil {
		return err
	}
	deliveries, err := subscriber.Subscribe(ctx, "fraud")
	if err != nil {
		return err
	}
	if err := lookAtQueues(ctx, operator); err != nil { // nothing is delivered, whenever we look
		return err
	}
	if err := operator.Resume(ctx, admin.Filter{Target: fraud, All: true}); err != nil {
		return err
	}
	for range 2 {
		msg := <-deliveries
		fmt.Println("handled", msg.UUID)
		msg.Ack()
	}
	if err := subscriber.Close(); err != nil {
		return err
	}
	account, err := operator.Account(ctx, fraud)
	if err != nil {
		return err
	}
	fmt.Printf("%s: written %d, pending %d, done %d\n", fraud, account.Written, account.Pending, account.Done)
	return nil
}

func lookAtQueues(ctx context.Context, operator *admin.Admin) error {
	queues, err := operator.Queues(ctx)
	if err != nil {
		return err
	}
	for _, q := range queues {
		fmt.Printf("%s: %d pending, paused: %t\n", q.Target, q.Pending, !q.Pause.Since.IsZero())
		messages, _, err := operator.Messages(ctx, admin.Filter{Target: q.Target})
		if err != nil {
			return err
		}
		for _, m := range messages {
			fmt.Println(m.MessageID, "is", m.Status)
		}
	}
	return nil
}
