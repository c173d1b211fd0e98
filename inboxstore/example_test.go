package inboxstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// A store by itself: whatever runs under the same key has its effect once.
func Example() {
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
	key := inboxstore.Key{Consumer: "payments", Topic: "orders", MessageID: "1"}
	for range 3 {
		fresh, err := store.Once(ctx, key, func(ctx context.Context) error {
			tx, _ := postbox.TxFromContext(ctx)
			_, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES ('1')")
			return err
		})
		fmt.Println(fresh, err)
	}
	// Output:
	// true <nil>
	// false <nil>
	// false <nil>
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
