package minutes_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/metrics/minutes"
)

func Example() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "postbox")
	must(err)
	defer func() { _ = os.RemoveAll(folder) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "shop.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	must(err)
	defer func() { _ = db.Close() }()
	database := postbox.Database{DB: db, Dialect: postbox.SQLite}
	must(postbox.Migrate(ctx, database))

	recorder, err := minutes.New(database, minutes.Config{}, nil)
	must(err)
	database.Metrics = recorder // before the constructors

	outbox, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{}, nil)
	must(err)
	published := make(broker)
	fwd, err := forwarder.New(database, published, forwarder.Config{}, nil)
	must(err)
	go func() { must(fwd.Run(ctx)) }()
	must(postbox.InTx(ctx, db, func(ctx context.Context, _ *sql.Tx) error {
		return outbox.Publish("orders", message.NewMessageWithContext(ctx, postbox.NewMessageID(), []byte("order 1")))
	}))
	<-published
	must(fwd.Close())
	must(outbox.Close())
	must(recorder.Close())

	var stored, done int
	must(db.QueryRowContext(ctx, "SELECT SUM(arrived), SUM(done) FROM postbox_minutes WHERE kind = 'outbox' AND name = 'outbox'").Scan(&stored, &done))
	fmt.Println(stored, "stored,", done, "done")
	// Output: 1 stored, 1 done
}

// broker is where messages go.
type broker chan *message.Message

func (b broker) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		b <- msg
	}
	return nil
}

func (broker) Close() error { return nil }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
