package upgrade_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// parts of Postbox, each at work for a moment. The error says what does not work.
var parts = map[string]func(ctx context.Context, database *testdb.Database) error{
	"publish": func(ctx context.Context, database *testdb.Database) error { return publish(ctx, database, 0) },
	"publish with a delay": func(ctx context.Context, database *testdb.Database) error {
		return publish(ctx, database, time.Millisecond)
	},
	"forward": forward,
	"inbox":   handleOnce,
	"defer":   func(ctx context.Context, database *testdb.Database) error { return deferring(ctx, database, false) },
	"queue":   func(ctx context.Context, database *testdb.Database) error { return deferring(ctx, database, true) },
}

var errNothingCame = errors.New("nothing came")

func publish(ctx context.Context, database *testdb.Database, after time.Duration) error {
	outbox, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	return forwarder.InTx(ctx, database.DB, func(ctx context.Context, _ *sql.Tx) error {
		msg := message.NewMessageWithContext(ctx, postbox.NewMessageID(), []byte("{}"))
		if after > 0 {
			delay.Message(msg, delay.For(after))
		}
		return outbox.Publish("orders", msg)
	})
}

// broker hands on what is published to it.
type broker struct{ came chan *message.Message }

// Publish blocks until the messages are taken.
func (b broker) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		b.came <- msg
	}
	return nil
}

// Close does nothing.
func (b broker) Close() error { return nil }

func forward(ctx context.Context, database *testdb.Database) error {
	if err := publish(ctx, database, 0); err != nil {
		return err
	}
	to := broker{make(chan *message.Message, 1000)}
	fwd, err := forwarder.New(database.Postbox(), to, forwarder.Config{PollMax: 20 * time.Millisecond}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.WithoutCancel(ctx)) }()
	select {
	case err := <-ended:
		return err
	case <-to.came:
		return errors.Join(fwd.Close(), <-ended)
	case <-ctx.Done():
		return errors.Join(errNothingCame, fwd.Close(), <-ended)
	}
}

func handleOnce(ctx context.Context, database *testdb.Database) error {
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "billing"}, nil)
	if err != nil {
		return err
	}
	msg := message.NewMessage(postbox.NewMessageID(), []byte("{}"))
	_, err = inbox.Process(ctx, msg, func(*message.Message) ([]*message.Message, error) { return nil, nil })
	return err
}

// deferring stores a message, and waits for one from the queue if it is to be handled.
func deferring(ctx context.Context, database *testdb.Database, handled bool) error {
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	stored := middleware.Defer(store, "fraud")(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	msg := message.NewMessage(postbox.NewMessageID(), []byte("{}"))
	msg.SetContext(ctx)
	if _, err := stored(msg); err != nil || !handled {
		return err
	}
	subscriber, err := queue.NewSubscriber(store, queue.Config{History: time.Hour, PollMax: 20 * time.Millisecond}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	defer func() { _ = subscriber.Close() }()
	messages, err := subscriber.Subscribe(ctx, "fraud")
	if err != nil {
		return err
	}
	select {
	case got := <-messages:
		got.Ack()
		return nil
	case <-ctx.Done():
		return errNothingCame
	}
}
