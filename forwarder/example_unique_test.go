package forwarder_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// Each payment asks for a new statement of the customer. While one waits, the next one is skipped.
// The statement that closes the account replaces it, since consumers must see that one.
func Example_uniqueKeys() {
	ctx := context.Background()
	db, remove := openShop(ctx)
	defer remove()
	outbox, err := forwarder.NewPublisher(postbox.Database{DB: db, Dialect: postbox.SQLite}, forwarder.PublisherConfig{}, nil)
	must(err)
	defer func() { _ = outbox.Close() }()

	publish := func(msg *message.Message) {
		must(postbox.InTx(ctx, db, func(ctx context.Context, _ *sql.Tx) error {
			msg.SetContext(forwarder.WhenSkipped(ctx, func(skipped *message.Message) {
				fmt.Println("skipped:", string(skipped.Payload))
			}))
			return outbox.Publish("statements", msg)
		}))
	}
	for _, payment := range []string{"first payment", "second payment"} {
		publish(postbox.SkipIfWaiting(message.NewMessage(postbox.NewMessageID(), []byte(payment)), "statement of customer 7"))
	}
	publish(postbox.ReplaceWaiting(message.NewMessage(postbox.NewMessageID(), []byte("account closed")), "statement of customer 7"))

	var waiting int
	var payload string
	must(db.QueryRowContext(ctx, "SELECT COUNT(*), MAX(payload) FROM postbox_messages").Scan(&waiting, &payload))
	fmt.Println("waiting:", waiting, payload)
	// Output:
	// skipped: second payment
	// waiting: 1 account closed
}
