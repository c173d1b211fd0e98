package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// businessTables are those of the application. Nothing in them keeps an order from having two
// invoices: it would show.
func (s *shop) businessTables() []string {
	number := map[postbox.Dialect]string{
		postbox.PostgreSQL: "bigserial", postbox.MySQL: "BIGINT AUTO_INCREMENT", postbox.SQLite: "INTEGER",
	}[s.tables.Dialect]
	return []string{
		"CREATE TABLE from_table_customers (name VARCHAR(64) NOT NULL PRIMARY KEY, orders INTEGER NOT NULL)",
		"CREATE TABLE from_table_invoices (number " + number + " PRIMARY KEY, customer VARCHAR(64) NOT NULL, order_number INTEGER NOT NULL)",
	}
}

// dropTables drops the tables of the application, so that each run begins in the old world. Those
// of Postbox stay.
func (s *shop) dropTables() []string {
	var statements []string
	for _, table := range []string{"events", "customers", "invoices"} {
		statements = append(statements, "DROP TABLE IF EXISTS "+prefix+table)
	}
	return statements
}

// Queries, each for one number.
const (
	orders    = "SELECT COALESCE(SUM(orders), 0) FROM from_table_customers"
	invoices  = "SELECT COUNT(*) FROM from_table_invoices"
	different = "SELECT COUNT(*) FROM (SELECT DISTINCT customer, order_number FROM from_table_invoices) AS once"
	// Negative where an order has two invoices.
	withoutInvoice = "SELECT (" + orders + ") - (" + invoices + ")"
	twice          = "SELECT COUNT(*) FROM (SELECT 1 FROM from_table_invoices GROUP BY customer, order_number HAVING COUNT(*) > 1) AS repeated"
	// An invoice that is written after one for a later order of the same customer.
	outOfOrder = `SELECT COUNT(*) FROM (
		SELECT order_number, LAG(order_number) OVER (PARTITION BY customer ORDER BY number) AS previous FROM from_table_invoices
	) AS pairs WHERE previous > order_number`
	pendingRows     = "SELECT COUNT(*) FROM from_table_events WHERE published_at IS NULL"
	rowsOfTheOld    = "SELECT COUNT(*) FROM from_table_events"
	pendingMessages = "SELECT COUNT(*) FROM " + prefix + "messages"
	deadLetters     = "SELECT COUNT(*) FROM " + prefix + "dead_letters"
)

func (s *shop) count(ctx context.Context, query string) (n int, err error) {
	if err = s.db.QueryRowContext(ctx, query).Scan(&n); err != nil {
		return 0, fmt.Errorf("%s: %w", query, err)
	}
	return n, nil
}

// wait returns when some more events have arrived, which were published after the call or shortly
// before.
func (s *shop) wait(ctx context.Context, what string) error {
	before, err := s.count(ctx, invoices)
	if err != nil {
		return err
	}
	if err := s.waitUntil(ctx, invoices, func(n int) bool { return n >= before+some }); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	_, err = fmt.Fprintln(s.out, what)
	return err
}

// waitForEmptyOutbox does what the command "postbox drain" does.
func (s *shop) waitForEmptyOutbox(ctx context.Context) error {
	return s.waitUntil(ctx, pendingMessages, func(n int) bool { return n == 0 })
}

func (s *shop) waitForEmptyTable(ctx context.Context) error {
	return s.waitUntil(ctx, pendingRows, func(n int) bool { return n == 0 })
}

// waitForInvoices waits for what is still in the broker.
func (s *shop) waitForInvoices(ctx context.Context) error {
	return s.waitUntil(ctx, withoutInvoice, func(n int) bool { return n <= 0 })
}

// waitUntil looks again and again, until the condition holds for the number, or ctx ends.
func (s *shop) waitUntil(ctx context.Context, query string, holds func(n int) bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := s.count(ctx, query)
		if err != nil || holds(n) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for a number, which is %d: %w", n, ctx.Err())
		case <-tick.C:
		}
	}
}

// outcome is what the database says in the end.
type outcome struct{ orders, moved, deliveries, duplicates, conflicts, lost, twice, outOfOrder, dead, left int }

func (s *shop) verify(ctx context.Context) error {
	o := outcome{deliveries: int(s.deliveries.Load()), conflicts: int(s.conflicts.Load())}
	var invoiced, rows, messages int
	for query, answer := range map[string]*int{
		orders: &o.orders, rowsOfTheOld: &o.moved, different: &invoiced, twice: &o.twice, outOfOrder: &o.outOfOrder,
		pendingRows: &rows, pendingMessages: &messages, deadLetters: &o.dead,
	} {
		n, err := s.count(ctx, query)
		if err != nil {
			return err
		}
		*answer = n
	}
	o.lost, o.left, o.duplicates = o.orders-invoiced, rows+messages, o.deliveries-o.orders
	if _, err := fmt.Fprintln(s.out, o); err != nil {
		return err
	}
	return o.verdict()
}

// String returns the last line of the program.
func (o outcome) String() string {
	return fmt.Sprintf("RESULT orders=%d rows_of_the_old_table=%d deliveries=%d duplicates_absorbed=%d placed_again=%d lost=%d twice=%d out_of_order=%d dead=%d left=%d",
		o.orders, o.moved, o.deliveries, o.duplicates, o.conflicts, o.lost, o.twice, o.outOfOrder, o.dead, o.left)
}

// verdict returns what is wrong.
func (o outcome) verdict() error {
	var problems []error
	for _, must := range []struct {
		hold bool
		or   string
	}{
		{o.lost == 0, "orders have no invoice"},
		{o.twice == 0, "orders have two invoices"},
		{o.outOfOrder == 0, "invoices were written before one for an earlier order of the customer"},
		{o.dead == 0, "there are dead letters"},
		{o.left == 0, "events are left in the old table or in the outbox"},
		{o.moved > 0 && o.moved < o.orders, "not both ways to publish were used"},
		{o.duplicates > 0, "nothing was delivered twice, so that was not tried"},
	} {
		if !must.hold {
			problems = append(problems, errors.New(must.or))
		}
	}
	return errors.Join(problems...)
}
