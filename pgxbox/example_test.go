package pgxbox_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/pgxbox"
	"github.com/postbox-go/watermill-postbox/queue"
)

// A service with a pool of pgx: it places an order, whose message is published to a broker, handled
// once by an inbox, and stored for a queue. The test below runs it.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	must(err)
	defer pool.Close()
	logger := watermill.NopLogger{}
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)

	database := pgxbox.Database(pool)
	defer func() { _ = database.DB.Close() }()
	must(postbox.Migrate(ctx, database))

	outbox, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{}, logger)
	must(err)
	fwd, err := forwarder.New(database, broker, forwarder.Config{}, logger)
	must(err)
	store, err := inboxstore.New(database, inboxstore.Config{}, logger)
	must(err)
	defer func() { _ = store.Close() }()

	router, err := message.NewRouter(message.RouterConfig{}, logger)
	must(err)

	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{}, logger)
	must(err)
	payments := router.AddConsumerHandler("payments", "orders", broker, func(msg *message.Message) error {
		tx, found := pgxbox.TxFromContext(msg.Context()) // commits together with the claim of the message
		if !found {
			return postbox.ErrNoTransaction
		}
		_, err := tx.CopyFrom(msg.Context(), pgx.Identifier{"payments"}, []string{"order_id"}, pgx.CopyFromRows([][]any{{string(msg.Payload)}}))
		return err
	})
	payments.AddMiddleware(inbox.Middleware)

	later, err := queue.NewSubscriber(store, queue.Config{Transactional: true}, logger)
	must(err)
	stored := router.AddConsumerHandler("checks-store", "orders", broker, func(*message.Message) error { return nil })
	stored.AddMiddleware(middleware.Defer(store, "checks"))
	done := make(chan struct{})
	checks := router.AddConsumerHandler("checks", "checks", later, func(msg *message.Message) error {
		tx, found := pgxbox.TxFromContext(msg.Context()) // commits together with the end of the message
		if !found {
			return postbox.ErrNoTransaction
		}
		postbox.AfterCommit(msg.Context(), func() { close(done) })
		_, err := tx.Exec(msg.Context(), "INSERT INTO checks VALUES ($1)", string(msg.Payload))
		return err
	})
	checks.AddMiddleware(middleware.Process)

	go func() { must(router.Run(ctx)) }()
	<-router.Running()
	go func() { must(fwd.Run(ctx)) }()

	must(pgxbox.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO orders VALUES ($1)", "order-1")
		batch.Queue("INSERT INTO lines SELECT $1, unnest($2::text[])", "order-1", []string{"tea", "cups"})
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		msg := message.NewMessage(postbox.NewMessageID(), []byte("order-1"))
		msg.SetContext(ctx) // the transaction travels in it
		return outbox.Publish("orders", msg)
	}))

	<-done
	must(fwd.Close()) // waits until the broker's consumers have acked
	must(router.Close())
	must(outbox.Close())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func TestExample_writes_all_that_it_says(t *testing.T) {
	s := newService(t, 4)
	t.Setenv("DATABASE_URL", s.DSN)
	s.Exec(t, "CREATE TABLE orders (id TEXT); CREATE TABLE lines (order_id TEXT, item TEXT); CREATE TABLE payments (order_id TEXT); CREATE TABLE checks (order_id TEXT)")
	Example()
	for table, rows := range map[string]int{"orders": 1, "lines": 2, "payments": 1, "checks": 1} {
		require.Equal(t, rows, s.Count(t, "SELECT COUNT(*) FROM "+table), table)
	}
}
