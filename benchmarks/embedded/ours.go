package embedded

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/queue"
)

// ours forwards with default settings, and stores messages before it handles them in micro-batches.
func ours(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
	if err := postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: postbox.SQLite}); err != nil {
		return err
	}
	list := all(stage)
	if err := stage.Start(ctx); err != nil {
		return err
	}
	through := newBroker()
	fwd, err := forwarder.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, through, forwarder.Config{}, nil)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(ctx) }()
	inbox, err := inboxstore.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, inboxstore.Config{}, nil)
	if err != nil {
		return err
	}
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	wait := through.consume(consuming, consumers, func(msg *message.Message) error {
		_, err := inbox.Defer(ctx, "accounts", inboxstore.Key{Consumer: "accounts", Topic: load.Topic, MessageID: msg.UUID}, msg)
		return err
	})
	subscriber, err := queue.NewSubscriber(inbox, queue.Config{Concurrency: 1, MicroBatch: microBatch}, nil)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, "accounts")
	if err != nil {
		return err
	}
	handled := make(chan error, 1)
	go func() { handled <- handleOurs(messages, len(list)) }()
	err = errors.Join(produceOurs(ctx, db, list), <-handled, stage.Stop(len(list)), subscriber.Close(), fwd.Close(), <-ended)
	stop()
	return errors.Join(err, wait(), inbox.Close())
}

func produceOurs(ctx context.Context, db *sql.DB, list []*message.Message) error {
	publisher, err := forwarder.NewPublisher(postbox.Database{DB: db, Dialect: postbox.SQLite}, forwarder.PublisherConfig{}, nil)
	if err != nil {
		return err
	}
	err = load.Clients(ctx, len(list), producers, func(ctx context.Context, i int) error {
		return postbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertOrder, 1, 1); err != nil {
				return err
			}
			list[i].SetContext(ctx)
			return publisher.Publish(load.Topic, list[i])
		})
	})
	return errors.Join(err, publisher.Close())
}

// handleOurs handles n messages.
func handleOurs(messages <-chan *message.Message, n int) error {
	for range n {
		msg := <-messages
		tx, ok := postbox.TxFromContext(msg.Context())
		if !ok {
			return errors.New("the message brings no transaction")
		}
		if _, err := tx.ExecContext(msg.Context(), updateAccount); err != nil {
			return err
		}
		msg.Ack()
	}
	return nil
}
