package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// tables of the example. Nothing in them keeps an order from being shipped twice: if the inbox
// failed, it would show.
const tables = `
	CREATE TABLE IF NOT EXISTS kafka_example_orders (
		number   bigserial PRIMARY KEY,
		id       text NOT NULL UNIQUE,
		customer text NOT NULL
	);
	CREATE TABLE IF NOT EXISTS kafka_example_shipments (
		number   bigserial PRIMARY KEY,
		order_id text NOT NULL,
		customer text NOT NULL
	);`

// sendsSomeTwice is a publisher that sends every fifth message twice, as any broker may deliver it,
// and counts.
type sendsSomeTwice struct {
	message.Publisher
	turns, once, again atomic.Int64
}

// Publish publishes the messages in their order, every fifth twice in a row.
func (p *sendsSomeTwice) Publish(topic string, messages ...*message.Message) error {
	const fifth = 5
	var all []*message.Message
	for _, msg := range messages {
		all = append(all, msg)
		if p.turns.Add(1)%fifth == 0 {
			all = append(all, msg)
		}
	}
	if err := p.Publisher.Publish(topic, all...); err != nil {
		return err
	}
	p.once.Add(int64(len(messages)))
	p.again.Add(int64(len(all) - len(messages)))
	return nil
}

func (p *sendsSomeTwice) all() int64   { return p.once.Load() + p.again.Load() }
func (p *sendsSomeTwice) twice() int64 { return p.again.Load() }

// deliveries counts what arrives, before the inbox.
type deliveries struct{ n atomic.Int64 }

func (d *deliveries) count(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		defer d.n.Add(1)
		return next(msg)
	}
}

func (d *deliveries) all() int64 { return d.n.Load() }

// waitUntilShipped returns when each order is shipped, and the duplicates have come too.
func waitUntilShipped(ctx context.Context, db *sql.DB, sent *sendsSomeTwice, seen *deliveries) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := unshipped(ctx, db)
		if err != nil || left == 0 && seen.all() >= sent.all() {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d shipments: %w", left, ctx.Err())
		case <-tick.C:
		}
	}
}

func unshipped(ctx context.Context, db *sql.DB) (int, error) {
	return count(ctx, db, `SELECT COUNT(*) FROM kafka_example_orders o
		WHERE NOT EXISTS (SELECT 1 FROM kafka_example_shipments s WHERE s.order_id = o.id)`)
}

// verify counts what must not be, over all runs of the example.
func verify(ctx context.Context, db *sql.DB) error {
	orders, err := count(ctx, db, "SELECT COUNT(*) FROM kafka_example_orders")
	if err != nil {
		return err
	}
	lost, err := unshipped(ctx, db)
	if err != nil {
		return err
	}
	twice, err := count(ctx, db, `
		SELECT COUNT(*) FROM (SELECT 1 FROM kafka_example_shipments GROUP BY order_id HAVING COUNT(*) > 1) AS repeated`)
	if err != nil {
		return err
	}
	outOfOrder, err := count(ctx, db, `
		SELECT COUNT(*) FROM (
			SELECT o.number, LAG(o.number) OVER (PARTITION BY o.customer ORDER BY s.number) AS before
			FROM kafka_example_shipments s JOIN kafka_example_orders o ON o.id = s.order_id
		) AS pairs WHERE before > number`)
	if err != nil {
		return err
	}
	fmt.Printf("of all %d orders that were ever placed: %d lost, %d shipped twice, %d shipped before an older one of the same customer\n",
		orders, lost, twice, outOfOrder)
	if lost+twice+outOfOrder > 0 {
		return errors.New("this must not be")
	}
	return nil
}

func count(ctx context.Context, db *sql.DB, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
