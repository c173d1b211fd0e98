package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/postbox-go/watermill-postbox/admin"
)

// tables of the services. Nothing in them keeps an order from being reviewed twice, or a stock from
// being reserved twice: if an inbox failed, it would show.
const tables = `
	CREATE TABLE IF NOT EXISTS fraud_users (
		id      TEXT PRIMARY KEY,
		status  TEXT NOT NULL,
		reviews INTEGER NOT NULL DEFAULT 0
	);
	CREATE TABLE IF NOT EXISTS fraud_products (
		id        TEXT PRIMARY KEY,
		delivered INTEGER NOT NULL,
		stock     INTEGER NOT NULL
	);
	CREATE TABLE IF NOT EXISTS fraud_customers (
		id      TEXT NOT NULL,
		orders  INTEGER NOT NULL DEFAULT 0,
		suspect BOOLEAN NOT NULL DEFAULT FALSE
	);
	CREATE TABLE IF NOT EXISTS fraud_catalogue (
		id TEXT NOT NULL
	);
	CREATE TABLE IF NOT EXISTS fraud_orders (
		id           TEXT PRIMARY KEY,
		user_id      TEXT NOT NULL,
		product_id   TEXT NOT NULL,
		quantity     INTEGER NOT NULL,
		status       TEXT NOT NULL,
		reservations INTEGER NOT NULL DEFAULT 0,
		reviews      INTEGER NOT NULL DEFAULT 0
	);`

// mustBeZero is what nobody wants to find, in all tables at once, as no service looks at them.
var mustBeZero = []struct{ what, query string }{
	{"active orders of suspects were not reviewed", `
		SELECT COUNT(*) FROM fraud_orders o JOIN fraud_users u ON u.id = o.user_id WHERE u.status = 'SUSPECT' AND o.reviews = 0`},
	{"orders were reviewed more than once", `
		SELECT COUNT(*) FROM fraud_orders WHERE reviews > 1`},
	{"orders of honest users were touched", `
		SELECT COUNT(*) FROM fraud_orders o JOIN fraud_users u ON u.id = o.user_id
		WHERE u.status = 'HONEST' AND (o.reviews > 0 OR o.status <> 'RESERVED')`},
	{"users heard of another number of reviews than there were", `
		SELECT COUNT(*) FROM fraud_users u
		WHERE u.reviews <> (SELECT COALESCE(SUM(o.reviews), 0) FROM fraud_orders o WHERE o.user_id = u.id)`},
	{"orders were not reserved exactly once", `
		SELECT COUNT(*) FROM fraud_orders WHERE reservations <> 1`},
	{"stocks do not add up", `
		SELECT COUNT(*) FROM fraud_products p WHERE p.delivered - p.stock <>
			(SELECT COALESCE(SUM(o.quantity), 0) FROM fraud_orders o WHERE o.product_id = p.id AND o.status <> 'CANCELLED')`},
	{"users are not known to the orders service exactly once", `
		SELECT COUNT(*) FROM fraud_users u WHERE (SELECT COUNT(*) FROM fraud_customers c WHERE c.id = u.id) <> 1`},
	{"products are not known to the orders service exactly once", `
		SELECT COUNT(*) FROM fraud_products p WHERE (SELECT COUNT(*) FROM fraud_catalogue c WHERE c.id = p.id) <> 1`},
}

// verify says what came of all runs so far, ends with a line for programs, and returns all that is
// not as it should be.
func (s *shop) verify(ctx context.Context, out io.Writer, db *sql.DB) error {
	var problems []error
	for _, wrong := range mustBeZero {
		var n int
		if err := db.QueryRowContext(ctx, wrong.query).Scan(&n); err != nil {
			return fmt.Errorf("count: %w: %s", err, wrong.query)
		}
		if n > 0 {
			problems = append(problems, fmt.Errorf("%d %s", n, wrong.what))
		}
	}
	reviewed, wrongly, err := reviews(ctx, db)
	if err != nil {
		return err
	}
	if wrongly > 0 {
		problems = append(problems, fmt.Errorf("%d orders were reviewed against the answer of the fraud check", wrongly))
	}
	dead := 0
	for _, own := range s.services() {
		letters, _, err := own.admin.DeadLetters(ctx, admin.Filter{})
		if err != nil {
			return err
		}
		dead += len(letters)
	}
	if dead > 0 {
		problems = append(problems, fmt.Errorf("%d dead letters are left", dead))
	}
	fmt.Fprintf(out, "RESULT confirmed=%d cancelled=%d refused=%d sent_twice=%d dead_letters=%d wrong=%d\n",
		reviewed[confirmed], reviewed[cancelled], s.refused.Load(), s.bus.again.Load(), dead, len(problems))
	return errors.Join(problems...)
}

// reviews counts the orders that were reviewed by what became of them, and those of which something
// else should have.
func reviews(ctx context.Context, db *sql.DB) (reviewed map[string]int, wrongly int, err error) {
	rows, err := db.QueryContext(ctx, "SELECT user_id, status, COUNT(*) FROM fraud_orders WHERE reviews > 0 GROUP BY user_id, status")
	if err != nil {
		return nil, 0, fmt.Errorf("count reviews: %w", err)
	}
	defer func() { _ = rows.Close() }()
	reviewed = map[string]int{}
	for rows.Next() {
		var userID, status string
		var n int
		if err := rows.Scan(&userID, &status, &n); err != nil {
			return nil, 0, fmt.Errorf("count reviews: %w", err)
		}
		reviewed[status] += n
		if (status == cancelled) != isFraud(userID) {
			wrongly += n
		}
	}
	return reviewed, wrongly, rows.Err()
}
