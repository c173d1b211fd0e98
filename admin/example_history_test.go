package admin_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// An inbox that keeps what it has handled: an operator reads it, and puts a copy into the outbox.
func ExampleAdmin_Replay_history() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "postbox")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "inbox.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	must(err)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	database := postbox.Database{DB: db, Dialect: postbox.SQLite}
	must(postbox.Migrate(ctx, database))
	store, err := inboxstore.New(database, inboxstore.Config{}, nil)
	must(err)
	defer func() { _ = store.Close() }()
	outbox, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{}, nil)
	must(err)
	defer func() { _ = outbox.Close() }()

	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Consumer: "payments", Topic: "orders", History: 7 * 24 * time.Hour, Outbox: outbox, PublishTopic: "receipts",
	}, nil)
	must(err)
	pay := func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("receipt of "+msg.UUID, nil)}, nil
	}
	for range 2 {
		_, err = inbox.Process(ctx, message.NewMessage("1", []byte("ten euros")), pay)
		must(err)
	}

	operator, err := admin.New(database, admin.Config{}, nil)
	must(err)
	received := admin.Inbox("payments")
	list, _, err := operator.Messages(ctx, admin.Filter{Target: received, Status: admin.Done, Topic: "orders"})
	must(err)
	for _, m := range list {
		whole, err := operator.Message(ctx, admin.Filter{Target: received, ID: m.ID})
		must(err)
		fmt.Printf("%s %s: %s\n", whole.Status, whole.MessageID, whole.Payload)
	}
	did, err := operator.Replay(ctx, admin.Filter{Target: received, MessageID: "1"}, admin.Again{To: admin.Outbox("outbox"), Topic: "orders", NewIDs: true})
	must(err)
	fmt.Println(did.Done, "replayed")
	// Output:
	// DONE 1: ten euros
	// 1 replayed
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
