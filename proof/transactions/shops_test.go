package transactions_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

// OrderPlaced is an event.
type OrderPlaced struct{ OrderID string }

// shop is a service that works with a library. docs/transactions.md shows parts of these methods.
type shop interface {
	// place stores an order in a transaction of the library, and publishes in it.
	place(ctx context.Context, bus *cqrs.EventBus, id string) error
	// pay stores a payment in a transaction of Postbox.
	pay(ctx context.Context, tx *sql.Tx, id string) error
}

// shops open the database once, with a library, and return the *sql.DB for Postbox too.
var shops = map[string]func(t *testing.T, database *testdb.Database) (shop, *sql.DB){
	"database/sql":                  openPlain,
	"database/sql, BeginTx":         openBegin,
	"gorm":                          openGorm(false),
	"gorm with prepared statements": openGorm(true),
	"bun":                           openBun,
	"bun with a resolver":           openBunWithResolver,
	"ent":                           openEnt,
	"sqlx":                          openSqlx,
	"sqlc":                          openSqlc,
	"pgx through database/sql":      openPgx,
}

func eachShop(t *testing.T, test func(t *testing.T, database *testdb.Database, shop shop, db *sql.DB)) {
	t.Helper()
	for _, kind := range databases {
		for name, open := range shops {
			if kind.only != nil && !slices.Contains(kind.only, name) {
				continue
			}
			t.Run(name+kind.name, func(t *testing.T) {
				t.Parallel()
				database := kind.open(t).Migrate(t)
				database.RunScript(t, "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY);\n"+
					"CREATE TABLE payments (id "+kind.id+", order_id VARCHAR(64) NOT NULL, payment_refunds BIGINT REFERENCES payments (id));")
				own := *database
				own.DB = database.Open(t) // on SQLite, a handler has the only connection of a handle
				shop, db := open(t, &own)
				test(t, database, shop, db)
			})
		}
	}
}

// databases are those that libraries work on. A test on SQLite needs no server.
var databases = []struct {
	name string // in the names of tests
	open func(*testing.T) *testdb.Database
	id   string
	only []string // nil for all
}{
	{"", testdb.Postgres, "bigserial PRIMARY KEY", nil},
	{" on SQLite", testdb.SQLite, "INTEGER PRIMARY KEY AUTOINCREMENT", []string{
		"database/sql", "database/sql, BeginTx", "gorm", "gorm with prepared statements", "bun", "bun with a resolver", "ent", "sqlx", "sqlc",
	}},
	{" on MariaDB", testdb.MySQL, "BIGINT AUTO_INCREMENT PRIMARY KEY", []string{
		"gorm", "gorm with prepared statements", "bun", "bun with a resolver",
	}},
}

// An order and its event are there together or not at all.
func TestShops_G1_publish_in_the_transaction_of_the_library(t *testing.T) {
	t.Parallel()
	eachShop(t, func(t *testing.T, database *testdb.Database, shop shop, db *sql.DB) {
		t.Helper()
		outbox, err := forwarder.NewPublisher(database.On(db), forwarder.PublisherConfig{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, outbox.Close()) })
		require.ErrorIs(t, shop.place(t.Context(), busOn(t, failing{outbox}), "1"), errPlanned)
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM orders"))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
		require.NoError(t, shop.place(t.Context(), busOn(t, outbox), "1"))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM orders"))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	})
}

var errPlanned = errors.New("planned")

func busOn(t *testing.T, publisher message.Publisher) *cqrs.EventBus {
	t.Helper()
	bus, err := cqrs.NewEventBusWithConfig(publisher, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "orders", nil },
		Marshaler:            cqrs.JSONMarshaler{},
	})
	require.NoError(t, err)
	return bus
}

// failing publishes, and then fails.
type failing struct{ message.Publisher }

func (f failing) Publish(topic string, messages ...*message.Message) error {
	return errors.Join(f.Publisher.Publish(topic, messages...), errPlanned)
}

// A handler writes with the library in the transaction of an inbox or of a queue, and publishes. It
// fails at first after all that, and the message comes twice: there is one payment and one answer.
func TestShops_G4_handle_in_the_transaction_of_Postbox(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]func(*service, handler) error{
		"inbox": func(s *service, handle handler) error {
			_, err := s.router.AddInboxHandler("payments", "orders", s.broker, "answers", answering(handle), middleware.InboxConfig{Retry: soon})
			return err
		},
		"queue": func(s *service, handle handler) error {
			_, err := s.router.AddQueueHandler("payments", "orders", s.broker, "answers", answering(handle), router.QueueConfig{Worker: queue.Config{Retry: soon}})
			return err
		},
		"command processor": addCommandHandler,
		"event processor":   addEventHandler,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachShop(t, func(t *testing.T, database *testdb.Database, shop shop, db *sql.DB) {
				t.Helper()
				handleTwice(t, database, shop, database.On(db), add)
			})
		})
	}
}

var soon = postbox.RetryProfile{Base: time.Millisecond, Cap: time.Millisecond}

// service has what a handler is added to.
type service struct {
	router *router.Router
	store  *inboxstore.Store
	outbox *forwarder.Publisher
	broker message.Subscriber
}

// handler takes the payment of an order.
type handler func(ctx context.Context, orderID string) error

// answering returns an answer as Watermill's handlers do.
func answering(handle handler) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if err := handle(msg.Context(), string(msg.Payload)); err != nil {
			return nil, err
		}
		return message.Messages{message.NewMessage(postbox.NewMessageID(), nil)}, nil
	}
}

func handleTwice(t *testing.T, database *testdb.Database, shop shop, tables postbox.Database, add func(*service, handler) error) {
	t.Helper()
	store, err := inboxstore.New(tables, inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	outbox, err := forwarder.NewPublisher(tables, forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, outbox.Close()) })
	r, err := router.New(nil, router.Config{Store: store, Outbox: outbox}, nil)
	require.NoError(t, err)
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	visible, attempts := 0, 0
	require.NoError(t, add(&service{r, store, outbox, broker}, func(ctx context.Context, orderID string) error {
		tx, found := postbox.TxFromContext(ctx)
		if !found {
			return postbox.ErrNoTransaction
		}
		if err := shop.pay(ctx, tx, orderID); err != nil {
			return err
		}
		visible += database.Count(t, "SELECT COUNT(*) FROM payments") // on another connection
		if attempts++; attempts == 1 {
			return errPlanned
		}
		return nil
	}))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.WithoutCancel(t.Context())) }()
	<-r.Running()
	for range 2 {
		order, err := marshaler.Marshal(OrderPlaced{OrderID: "1"})
		require.NoError(t, err)
		order.UUID = "1"
		require.NoError(t, broker.Publish("orders", order))
	}
	require.Eventually(t, func() bool { return database.Count(t, "SELECT COUNT(*) FROM payments") > 0 }, time.Minute, testdb.PollPause)
	require.NoError(t, r.Close())
	require.NoError(t, <-ended)
	require.Equal(t, 2, attempts)
	require.Zero(t, visible, "a write has escaped the transaction")
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM payments"))
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'answers'"))
}
