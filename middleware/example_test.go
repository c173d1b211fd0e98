package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// An inbox without a router: a failed attempt leaves nothing, a second delivery is absorbed.
func ExampleInbox_Process() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "postbox")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "inbox.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	must(err)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	must(postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: postbox.SQLite}))
	_, err = db.ExecContext(ctx, "CREATE TABLE payments (order_id TEXT)")
	must(err)
	store, err := inboxstore.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, inboxstore.Config{}, nil)
	must(err)
	defer func() { _ = store.Close() }()

	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Consumer: "payments", Topic: "orders", Retry: postbox.RetryProfile{Base: time.Millisecond},
	}, nil)
	must(err)
	broken := true
	pay := func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := postbox.TxFromContext(msg.Context())
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO payments VALUES (?)", msg.UUID); err != nil {
			return nil, err
		}
		if broken {
			return nil, errors.New("the bank does not answer")
		}
		return nil, nil
	}

	msg := message.NewMessage("1", nil)
	fmt.Println(inbox.Process(ctx, msg, pay))
	broken = false
	fmt.Println(inbox.Process(ctx, msg, pay))
	fmt.Println(inbox.Process(ctx, msg, pay))
	var payments int
	must(db.QueryRowContext(ctx, "SELECT COUNT(*) FROM payments").Scan(&payments))
	fmt.Println(payments, "payment")
	// Output:
	// false the bank does not answer
	// true <nil>
	// false <nil>
	// 1 payment
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
