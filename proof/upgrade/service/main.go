// Service is a process that places orders, relays their messages to a queue, and handles them there, until its standard input ends.
// A test builds it with this version of Postbox and with an older one, so it uses only what both have.
//
//	service DIALECT DSN          places orders and handles messages
//	service DIALECT DSN drain    handles messages only
//
// Orders are rows of customers, whose number of orders grows, and each order has one effect, in a table of its own.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // driver "mysql"
	_ "github.com/lib/pq"              // driver "postgres"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

func main() {
	if err := run(postbox.Dialect(os.Args[1]), os.Args[2], len(os.Args) == 3); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	customers = 8
	pause     = 5 * time.Millisecond
)

// service is the process.
type service struct {
	db       *sql.DB
	database postbox.Database
	store    *inboxstore.Store
	outbox   *forwarder.Publisher
}

func run(dialect postbox.Dialect, dsn string, places bool) error {
	driver := map[postbox.Dialect]string{postbox.PostgreSQL: "postgres", postbox.MySQL: "mysql", postbox.SQLite: "sqlite"}[dialect]
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(8)
	if dialect == postbox.SQLite {
		db.SetMaxOpenConns(1)
	}
	s := service{db: db, database: postbox.Database{DB: db, Dialect: dialect}}
	if err := postbox.Migrate(context.Background(), s.database); err != nil {
		return err
	}
	if s.store, err = inboxstore.New(s.database, inboxstore.Config{}, nil); err != nil {
		return err
	}
	defer func() { _ = s.store.Close() }()
	if s.outbox, err = forwarder.NewPublisher(s.database, forwarder.PublisherConfig{}, nil); err != nil {
		return err
	}
	defer func() { _ = s.outbox.Close() }()
	return s.serve(places)
}

// serve works until the standard input ends, and then stops the way a service does.
func (s service) serve(places bool) error {
	logger := watermill.NopLogger{}
	fwd, err := forwarder.New(s.database, s.toQueue(), forwarder.Config{PollMax: 50 * time.Millisecond, Lease: 5 * time.Second}, logger)
	if err != nil {
		return err
	}
	subscriber, err := queue.NewSubscriber(s.store, queue.Config{Transactional: true, PollMax: 50 * time.Millisecond, Lease: 5 * time.Second}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddConsumerHandler("effects", "orders", subscriber, s.effect).AddMiddleware(middleware.Process)
	ended := make(chan error, 3)
	go func() { ended <- fwd.Run(context.Background()) }()
	go func() { ended <- router.Run(context.Background()) }()
	placing, stop := context.WithCancel(context.Background())
	if !places {
		stop()
	}
	go func() { ended <- s.placeOrders(placing) }()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
		_ = errors.Join(fwd.Close(), router.Close()) // which the functions above return too
	}()
	return errors.Join(<-ended, <-ended, <-ended)
}

// placeOrders places orders until ctx ends.
func (s service) placeOrders(ctx context.Context) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for n := os.Getpid(); ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := s.placeOrder(context.WithoutCancel(ctx), fmt.Sprint("customer ", n%customers)); err != nil {
			return err
		}
	}
}

// placeOrder locks the customer, so that the orders of a customer have an order.
func (s service) placeOrder(ctx context.Context, customer string) error {
	return forwarder.InTx(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, s.bind("UPDATE customers SET orders = orders + 1 WHERE name = ?"), customer); err != nil {
			return err
		}
		var orders int
		if err := tx.QueryRowContext(ctx, s.bind("SELECT orders FROM customers WHERE name = ?"), customer).Scan(&orders); err != nil {
			return err
		}
		msg := message.NewMessageWithContext(ctx, postbox.NewMessageID(), fmt.Append(nil, customer, "/", orders))
		msg.Metadata.Set(postbox.OrderingKey, customer)
		return s.outbox.Publish("orders", msg)
	})
}

// toQueue is the broker: what is published to it is stored in the queue.
func (s service) toQueue() message.Publisher {
	stored := middleware.Defer(s.store, "orders")(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	return broker{stored}
}

type broker struct{ stored message.HandlerFunc }

// Publish stores the messages, each once.
func (b broker) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		arrived := msg.Copy()
		arrived.SetContext(msg.Context())
		if _, err := b.stored(arrived); err != nil {
			return err
		}
	}
	return nil
}

// Close does nothing.
func (b broker) Close() error { return nil }

// effect handles a message in the transaction of the queue.
func (s service) effect(msg *message.Message) error {
	tx, ok := postbox.TxFromContext(msg.Context())
	if !ok {
		return postbox.ErrNoTransaction
	}
	customer, number, _ := strings.Cut(string(msg.Payload), "/")
	_, err := tx.ExecContext(msg.Context(), s.bind("INSERT INTO effects (customer, order_number, process) VALUES (?, ?, ?)"), customer, number, os.Getpid())
	return err
}

// bind turns the question marks of a statement into what PostgreSQL takes.
func (s service) bind(query string) string {
	if s.database.Dialect != postbox.PostgreSQL {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprint("$", n), 1)
	}
	return query
}
