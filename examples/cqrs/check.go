package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// tables of the shop. Nothing in them keeps an effect from being there twice: if the inbox failed,
// it would show.
const tables = `
	CREATE TABLE IF NOT EXISTS cqrs_orders (id TEXT NOT NULL, customer TEXT NOT NULL);
	CREATE TABLE IF NOT EXISTS cqrs_payments (order_id TEXT NOT NULL);
	CREATE TABLE IF NOT EXISTS cqrs_points (order_id TEXT NOT NULL);
	CREATE TABLE IF NOT EXISTS cqrs_sales (order_id TEXT NOT NULL, customer TEXT NOT NULL, position BIGINT NOT NULL);`

// trouble is a broker that delivers one message in four twice, and handlers that fail.
type trouble struct {
	message.Publisher
	sent, again, failures atomic.Int64
	expected, delivered   atomic.Int64 // all deliveries
}

var errPlanned = errors.New("this handler fails after it has written")

const (
	fourth      = 4
	eighth      = 8
	eventGroups = 2
)

// Publish publishes the messages, and some of them again.
func (t *trouble) Publish(topic string, messages ...*message.Message) error {
	all := slices.Clone(messages)
	for _, msg := range messages {
		if rand.IntN(fourth) == 0 { //nolint:gosec // any dice will do
			all = append(all, msg)
		}
	}
	groups := 1
	if topic == events {
		groups = eventGroups
	}
	deliveries := int64(groups * len(all))
	t.expected.Add(deliveries) // before they are under way, so that nobody thinks that all is quiet
	if err := t.Publisher.Publish(topic, all...); err != nil {
		t.expected.Add(-deliveries)
		return err
	}
	t.sent.Add(int64(len(messages)))
	t.again.Add(int64(len(all) - len(messages)))
	return nil
}

// count is a middleware.
func (t *trouble) count(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if topic := message.SubscribeTopicFromCtx(msg.Context()); err == nil && (topic == commands || topic == events) {
			t.delivered.Add(1)
		}
		return produced, err
	}
}

// strike fails one time in eight.
func (t *trouble) strike() error {
	if rand.IntN(eighth) == 0 { //nolint:gosec // any dice will do
		t.failures.Add(1)
		return errPlanned
	}
	return nil
}

// waitUntilQuiet returns when outbox and queue are empty, and all deliveries have come.
func (t *trouble) waitUntilQuiet(ctx context.Context, db *sql.DB) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		waiting, err := count(ctx, db, "SELECT COUNT(*) FROM cqrs_messages")
		if err != nil || waiting == 0 && t.delivered.Load() >= t.expected.Load() {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d messages: %w", waiting, ctx.Err())
		case <-tick.C:
		}
	}
}

// verify counts what must not be, over all runs of the example.
func verify(ctx context.Context, out io.Writer, db *sql.DB, t *trouble) error {
	orders, err := count(ctx, db, "SELECT COUNT(*) FROM cqrs_orders")
	if err != nil {
		return err
	}
	var lost, twice int
	for _, effect := range []string{"SELECT id FROM cqrs_orders", "SELECT order_id FROM cqrs_payments", "SELECT order_id FROM cqrs_points", "SELECT order_id FROM cqrs_sales"} {
		all, err := count(ctx, db, "SELECT COUNT(*) FROM ("+effect+") AS effects")
		if err != nil {
			return err
		}
		different, err := count(ctx, db, "SELECT COUNT(*) FROM ("+effect+" INTERSECT SELECT id FROM cqrs_orders) AS effects")
		if err != nil {
			return err
		}
		lost, twice = lost+orders-different, twice+all-different
	}
	disorder, err := count(ctx, db, `
		SELECT COUNT(*) FROM cqrs_sales a JOIN cqrs_sales b ON a.customer = b.customer AND a.position < b.position AND a.order_id > b.order_id`)
	if err != nil {
		return err
	}
	dead, err := count(ctx, db, "SELECT COUNT(*) FROM cqrs_dead_letters")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Of %d messages %d came twice, and handlers failed %d times.\n", t.sent.Load(), t.again.Load(), t.failures.Load())
	fmt.Fprintf(out, "RESULT orders=%d lost=%d applied_twice=%d order_violations=%d dead_letters=%d\n", orders, lost, twice, disorder, dead)
	if lost+twice+disorder+dead > 0 {
		return errors.New("this must not be")
	}
	return nil
}

func count(ctx context.Context, db *sql.DB, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
