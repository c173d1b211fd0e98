package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
)

const (
	customers = 20
	cheapest  = 100    // cents
	dearest   = 10_000 // cents
	// orderEvery is the pause between two orders: there shall be something to do while the shop is
	// killed.
	orderEvery = 4 * time.Millisecond
	lookAgain  = 50 * time.Millisecond
)

// serveCustomers places orders until there are as many as wanted, and then waits for their events.
// It goes on where the process before it was killed.
func serveCustomers(ctx context.Context, db *sql.DB, outbox message.Publisher, wanted int) error {
	for n := range customers {
		if _, err := db.ExecContext(ctx, "INSERT INTO accounts (customer) VALUES (?) ON CONFLICT DO NOTHING", customer(n)); err != nil {
			return fmt.Errorf("open an account: %w", err)
		}
	}
	var placed int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders").Scan(&placed); err != nil {
		return fmt.Errorf("count orders: %w", err)
	}
	pause := time.NewTicker(orderEvery)
	defer pause.Stop()
	for ; placed < wanted; placed++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
		who, cents := customer(rand.IntN(customers)), cheapest+rand.Int64N(dearest-cheapest) //nolint:gosec // no secrets here
		if err := placeOrder(ctx, db, outbox, who, cents); err != nil {
			return fmt.Errorf("place an order: %w", err)
		}
	}
	return waitForEmptyOutbox(ctx, db)
}

func customer(n int) string { return fmt.Sprintf("customer %02d", n+1) }

// waitForEmptyOutbox returns when all events are handled: an event stays in the outbox until then,
// and those that its handling makes are there before it goes.
func waitForEmptyOutbox(ctx context.Context, db *sql.DB) error {
	inspect, err := admin.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, admin.Config{}, nil)
	if err != nil {
		return err
	}
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		queues, err := inspect.Queues(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(queues, func(q admin.QueueInfo) bool { return q.Pending > 0 }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
