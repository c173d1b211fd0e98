package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

const (
	// producers take orders at the same time. Any of them may get the next order of a customer.
	producers = 4
	customers = 10
	// some is the number of events that arrive before the story goes on.
	some = 25
	// pause of a producer between two orders.
	pause = 10 * time.Millisecond
	// backlog is the number of orders that have not arrived at which producers wait, so that a slow
	// machine has no long story. It is below some, so that events arrive that were published in the
	// new way before the story goes on.
	backlog = 20
)

// way is how a producer publishes.
type way int32

const (
	old       way = iota // a row in the old table
	switching            // the outbox, after the rows of the same customer that are still in the old table
	changed              // the outbox
)

// shop is the application with its old outbox and the one of Postbox.
type shop struct {
	application

	db        *sql.DB
	table     oldTable
	outbox    *forwarder.Publisher
	producers [producers]*producer
	// What is counted while the story is told: orders, events that arrived, and orders that were
	// placed again after a deadlock.
	placed, deliveries, conflicts atomic.Int64
}

// newShop creates all tables, after those of an earlier run have been dropped.
func (a application) newShop(ctx context.Context) (*shop, error) {
	s := &shop{application: a, db: a.tables.DB, table: newOldTable(a.tables.Dialect)}
	for _, statement := range append(s.dropTables(), append(s.table.create(), s.businessTables()...)...) {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return nil, fmt.Errorf("%s: %w", statement, err)
		}
	}
	for customer := range customers {
		if _, err := s.db.ExecContext(ctx, s.table.bind("INSERT INTO from_table_customers (name, orders) VALUES (?, 0)"), nameOf(customer)); err != nil {
			return nil, err
		}
	}
	// Step 1 of the change: the tables of Postbox, beside the old one.
	if err := postbox.Migrate(ctx, a.tables); err != nil {
		return nil, err
	}
	var err error
	s.outbox, err = forwarder.NewPublisher(a.tables, forwarder.PublisherConfig{}, a.logger)
	return s, err
}

func nameOf(customer int) string { return fmt.Sprintf("customer %d", customer) }

// producer is a process that takes orders.
type producer struct {
	*worker

	way atomic.Int32
}

func (s *shop) startProducers(ctx context.Context) error {
	for i := range s.producers {
		p := &producer{}
		p.worker = start(ctx, func(ctx context.Context) error { return s.produce(ctx, p, i) })
		s.producers[i] = p
	}
	return nil
}

// switchProducers lets one producer after the other publish in another way, as a rolling deployment
// does. Events go on arriving meanwhile.
func (s *shop) switchProducers(ctx context.Context, to way) error {
	for i, p := range s.producers {
		p.way.Store(int32(to))
		if err := s.wait(ctx, fmt.Sprintf("producer %d of %d publishes %s", i+1, producers, to)); err != nil {
			return err
		}
	}
	return nil
}

// String says how in words.
func (w way) String() string {
	return [...]string{"to the old table", "to the outbox, behind rows of the old table", "to the outbox"}[w]
}

func (s *shop) stopProducers() error {
	var problems []error
	for _, p := range s.producers {
		problems = append(problems, p.stop())
	}
	return errors.Join(problems...)
}

// produce places orders until ctx ends.
func (s *shop) produce(ctx context.Context, p *producer, first int) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for n := first; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if s.placed.Load()-s.deliveries.Load() >= backlog {
			continue
		}
		for failed := 0; ; failed++ {
			err := s.placeOrder(context.WithoutCancel(ctx), way(p.way.Load()), nameOf(n%customers))
			if err == nil {
				s.placed.Add(1)
				break
			}
			if failed == 10 {
				return fmt.Errorf("place an order: %w", err)
			}
			s.conflicts.Add(1)
		}
	}
}

// placeOrder is the business code: a change of the database and its event in one transaction. The
// row of the customer is locked first, so that the orders of a customer have an order.
func (s *shop) placeOrder(ctx context.Context, how way, customer string) error {
	return postbox.InTxWith(ctx, s.db, s.table.isolation, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, s.table.bind("UPDATE from_table_customers SET orders = orders + 1 WHERE name = ?"), customer); err != nil {
			return err
		}
		var orders int
		if err := tx.QueryRowContext(ctx, s.table.bind("SELECT orders FROM from_table_customers WHERE name = ?"), customer).Scan(&orders); err != nil {
			return err
		}
		e := event{id: postbox.NewMessageID(), topic: s.topic, customer: customer, body: fmt.Sprintf("%s/%d", customer, orders)}
		switch how {
		case switching:
			return s.table.publishAfterMoving(ctx, tx, s.outbox, e)
		case changed:
			return publish(ctx, s.outbox, e)
		default:
			return s.table.insert(ctx, tx, e)
		}
	})
}
