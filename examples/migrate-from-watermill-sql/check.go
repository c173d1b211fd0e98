package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// tables of the application. Nothing in them keeps an order from having two invoices: it would
// show. What a former run has left is dropped first, with the tables of Postbox and of
// watermill-sql, so that each run begins in the old world.
const tables = `
	DO $$
	DECLARE name text;
	BEGIN
		FOR name IN SELECT tablename FROM pg_tables
			WHERE schemaname = current_schema() AND tablename LIKE '%migration\_example\_%'
		LOOP
			EXECUTE format('DROP TABLE IF EXISTS %I CASCADE', name); -- one inherits from another
		END LOOP;
	END $$;
	CREATE TABLE migration_example_orders (
		number   bigserial PRIMARY KEY,
		id       text NOT NULL UNIQUE,
		customer text NOT NULL
	);
	CREATE TABLE migration_example_invoices (
		number   bigserial PRIMARY KEY,
		order_id text NOT NULL
	);`

// Queries, each for one number.
const (
	invoices  = `SELECT COUNT(*) FROM migration_example_invoices`
	orders    = `SELECT COUNT(*) FROM migration_example_orders`
	unhandled = `
		SELECT COUNT(*) FROM migration_example_orders o
		WHERE NOT EXISTS (SELECT 1 FROM migration_example_invoices i WHERE i.order_id = o.id)`
	twice = `
		SELECT COUNT(*) FROM (SELECT 1 FROM migration_example_invoices GROUP BY order_id HAVING COUNT(*) > 1) AS repeated`
	outOfOrder = `
		SELECT COUNT(*) FROM (
			SELECT o.number, LAG(o.number) OVER (PARTITION BY o.customer ORDER BY i.number) AS before
			FROM migration_example_invoices i JOIN migration_example_orders o ON o.id = i.order_id
		) AS pairs WHERE before > number`
)

func count(ctx context.Context, db *sql.DB, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// waitForInvoices returns when there are as many.
func waitForInvoices(ctx context.Context, db *sql.DB, wanted int) error {
	return waitUntil(ctx, db, invoices, func(n int) bool { return n >= wanted })
}

// waitForAllInvoices returns when each order has its invoice.
func waitForAllInvoices(ctx context.Context, db *sql.DB) error {
	return waitUntil(ctx, db, unhandled, func(n int) bool { return n == 0 })
}

// waitUntil looks again and again, until the condition holds for the number, or ctx ends.
func waitUntil(ctx context.Context, db *sql.DB, query string, holds func(n int) bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := count(ctx, db, query)
		if err != nil || holds(n) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for invoices, the count is %d: %w", n, ctx.Err())
		case <-tick.C:
		}
	}
}

// verify counts what must not be.
func verify(ctx context.Context, db *sql.DB) error {
	numbers := map[string]int{orders: 0, unhandled: 0, twice: 0, outOfOrder: 0}
	for query := range numbers {
		n, err := count(ctx, db, query)
		if err != nil {
			return err
		}
		numbers[query] = n
	}
	fmt.Printf("of %d orders: %d without an invoice, %d with two, %d before an older one of the same customer\n",
		numbers[orders], numbers[unhandled], numbers[twice], numbers[outOfOrder])
	if numbers[unhandled]+numbers[twice]+numbers[outOfOrder] > 0 {
		return errors.New("this must not be")
	}
	return nil
}
