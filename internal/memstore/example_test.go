package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/memstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// A test of a handler behind an inbox: the bank is away at first, and the message is delivered once
// too often.
func Example() {
	store := memstore.New(memstore.Config{})
	defer func() { _ = store.Close() }()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Consumer: "payments", Topic: "orders", Retry: postbox.RetryProfile{Base: time.Millisecond},
	}, nil)
	must(err)
	bankIsAway, payments := true, 0
	pay := func(*message.Message) ([]*message.Message, error) {
		if bankIsAway {
			return nil, errors.New("the bank does not answer")
		}
		payments++
		return nil, nil
	}

	msg := message.NewMessage("order 1", nil)
	fmt.Println(inbox.Process(context.Background(), msg, pay))
	bankIsAway = false
	fmt.Println(inbox.Process(context.Background(), msg, pay))
	fmt.Println(inbox.Process(context.Background(), msg, pay))
	fmt.Println(payments, "payment,", len(store.DeadLetters()), "dead letters")
	// Output:
	// false the bank does not answer
	// true <nil>
	// false <nil>
	// 1 payment, 0 dead letters
}

// Hours pass at once: a message that fails is tried again after the pause of its profile, and then
// is dead.
func ExampleStore_Advance() {
	ctx := context.Background()
	store := memstore.New(memstore.Config{})
	defer func() { _ = store.Close() }()
	subscriber, err := store.Subscriber(postbox.RetryProfile{Attempts: 2, Base: time.Hour})
	must(err)
	messages, err := subscriber.Subscribe(ctx, "fraud")
	must(err)

	order := message.NewMessage("order 1", nil)
	order.SetContext(ctx)
	_, err = middleware.Defer(store, "fraud")(nil)(order)
	must(err)
	(<-messages).Nack()
	store.Advance(time.Hour)
	(<-messages).Nack()
	must(subscriber.Close())
	for _, letter := range store.DeadLetters() {
		fmt.Println(letter.Message.UUID, "is dead after", letter.Attempts, "attempts:", letter.Err)
	}
	// Output:
	// order 1 is dead after 2 attempts: the handler nacked the message
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
