package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// books are what the database says in the end, of all runs of the example.
type books struct {
	sales   map[string]sale
	lines   map[string][]time.Time // the midnights by sale: one, it is to be hoped
	stored  map[string]time.Time   // by sale that was reported
	done    map[string]time.Time
	dead    map[string]string // why, by sale
	reports totals
	batches int64         // of the report with the most
	queue   admin.Account // what became of all that was stored
}

// readBooks reads the tables, and asks Postbox what an operator would.
func (a *app) readBooks(ctx context.Context) (b books, err error) {
	b = books{
		sales: map[string]sale{}, lines: map[string][]time.Time{}, dead: map[string]string{}, reports: totals{},
		stored: map[string]time.Time{}, done: map[string]time.Time{},
	}
	err = errors.Join(
		a.each(ctx, "SELECT id, currency, cents FROM daily_report_sales", func(scan scanner) error {
			var sold sale
			err := scan(&sold.ID, &sold.Currency, &sold.Cents)
			b.sales[sold.ID] = sold
			return err
		}),
		a.each(ctx, "SELECT midnight, sale_id FROM daily_report_lines", func(scan scanner) error {
			var midnight int64
			var id string
			err := scan(&midnight, &id)
			b.lines[id] = append(b.lines[id], time.UnixMicro(midnight))
			return err
		}),
		a.each(ctx, "SELECT midnight, currency, sales, cents, batches FROM daily_report_reports", func(scan scanner) error {
			var of account
			var total sum
			var batches int64
			err := scan(&of.midnight, &of.currency, &total.sales, &total.cents, &batches)
			b.reports[of], b.batches = total, max(b.batches, batches)
			return err
		}),
		a.readHistory(ctx, b),
	)
	if err != nil {
		return b, err
	}
	letters, _, err := a.operator.DeadLetters(ctx, admin.Filter{Limit: 1000})
	if err != nil {
		return b, err
	}
	for _, letter := range letters {
		b.dead[letter.MessageID] = letter.Error
	}
	b.queue, err = a.operator.Account(ctx, admin.Queue(queueName))
	return b, err
}

// readHistory reads when each sale was stored and when it was done, both by the database's clock.
// The queue keeps what is done, since queue.Config.History says so.
func (a *app) readHistory(ctx context.Context, b books) error {
	filter := admin.Filter{Target: admin.Queue(queueName), Status: admin.Done, Limit: 1000}
	for {
		page, next, err := a.operator.Messages(ctx, filter)
		for _, msg := range page {
			b.stored[msg.MessageID], b.done[msg.MessageID] = msg.CreatedAt, msg.DoneAt
		}
		if filter.After = next; err != nil || next == "" {
			return err
		}
	}
}

// scanner reads a row.
type scanner func(columns ...any) error

// each reads the rows that a query selects.
func (a *app) each(ctx context.Context, query string, row func(scan scanner) error) error {
	rows, err := a.DB.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return rows.Err()
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func (t totals) sorted() []account {
	return slices.SortedFunc(maps.Keys(t), func(a, b account) int {
		return cmp.Or(cmp.Compare(a.midnight, b.midnight), cmp.Compare(a.currency, b.currency))
	})
}
