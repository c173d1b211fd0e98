package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postbox-go/watermill-postbox/metrics"
)

// tables of the example. Nothing in them keeps an order from being shipped twice: if the inbox
// failed, it would show.
const tables = `
	CREATE TABLE IF NOT EXISTS tail_example_orders (
		number   bigserial PRIMARY KEY,
		id       text NOT NULL UNIQUE,
		customer text NOT NULL
	);
	CREATE TABLE IF NOT EXISTS tail_example_shipments (
		number   bigserial PRIMARY KEY,
		order_id text NOT NULL,
		customer text NOT NULL
	);`

// taken counts the messages that the log has told of.
type taken struct{ n atomic.Int64 }

// Record records a measurement.
func (t *taken) Record(instrument *metrics.Instrument, value float64, _ ...string) {
	if instrument.Name == "postbox.log.messages" {
		t.n.Add(int64(value))
	}
}

// waitUntilShipped returns when each order is shipped.
func (w *world) waitUntilShipped(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := w.count(ctx, lost)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d shipments: %w", left, ctx.Err())
		case <-tick.C:
		}
	}
}

const (
	lost = `
		SELECT COUNT(*) FROM tail_example_orders o
		WHERE NOT EXISTS (SELECT 1 FROM tail_example_shipments s WHERE s.order_id = o.id)`
	twice = `
		SELECT COUNT(*) FROM (SELECT 1 FROM tail_example_shipments GROUP BY order_id HAVING COUNT(*) > 1) AS repeated`
	outOfOrder = `
		SELECT COUNT(*) FROM (
			SELECT o.number, LAG(o.number) OVER (PARTITION BY o.customer ORDER BY s.number) AS before
			FROM tail_example_shipments s JOIN tail_example_orders o ON o.id = s.order_id
		) AS pairs WHERE before > number`
)

// verify counts what must not be, over all runs of the example.
func (w *world) verify(ctx context.Context) error {
	var counts [4]int
	for i, query := range []string{"SELECT COUNT(*) FROM tail_example_orders", lost, twice, outOfOrder} {
		var err error
		if counts[i], err = w.count(ctx, query); err != nil {
			return err
		}
	}
	fmt.Printf("RESULT orders=%d lost=%d shipped_twice=%d out_of_order=%d from_the_log=%d\n", counts[0], counts[1], counts[2], counts[3], w.taken.n.Load())
	if counts[1]+counts[2]+counts[3] > 0 {
		return errors.New("this must not be")
	}
	return nil
}

func (w *world) count(ctx context.Context, query string) (n int, err error) {
	err = w.db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
