package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// books are the database as the demo reads it, from a process that the shop has nothing to do with.
type books struct{ db *sql.DB }

// progress is how far the shop has got.
type progress struct{ orders, payments, confirmed int }

// workPerOrder is what an order makes of [progress.work].
const workPerOrder = 3

func (p progress) work() int { return p.orders + p.payments + p.confirmed }

// outcome is what the database says at the end.
type outcome struct {
	committed    int // orders
	applied      int // orders that have been paid
	lost         int // orders without a payment or without its confirmation, whose event is no dead letter either
	appliedTwice int // orders with more than one payment, or that were confirmed twice
	outOfOrder   int // payments that were taken before that of an earlier order of the same customer
	deadLetters  int
	events       int // that had an effect
	deliveries   int
	duplicates   int // deliveries of events that had had their effect
	ordered      int // cents
	charged      int // cents
	kills        int // counted by the demo, the rest is from the database
}

func (b books) progress(ctx context.Context) (p progress, err error) {
	err = b.db.QueryRowContext(ctx, `
		SELECT (SELECT COUNT(*) FROM orders), (SELECT COUNT(*) FROM payments), (SELECT COUNT(*) FROM orders WHERE paid > 0)`).
		Scan(&p.orders, &p.payments, &p.confirmed)
	return p, err
}

// outcome counts. Each query returns one number.
func (b books) outcome(ctx context.Context, kills int) (o outcome, err error) {
	for _, count := range []struct {
		of    *int
		query string
	}{
		{&o.committed, `SELECT COUNT(*) FROM orders`},
		{&o.applied, `SELECT COUNT(DISTINCT order_id) FROM payments`},
		{&o.lost, `
			SELECT COUNT(*) FROM orders WHERE (paid = 0 OR id NOT IN (SELECT order_id FROM payments))
			AND id NOT IN (SELECT json_extract(CAST(payload AS TEXT), '$.order_id') FROM postbox_dead_letters)`},
		{&o.appliedTwice, `
			SELECT COUNT(*) FROM orders
			WHERE paid > cents OR id IN (SELECT order_id FROM payments GROUP BY order_id HAVING COUNT(*) > 1)`},
		{&o.outOfOrder, `
			SELECT COUNT(*) FROM (
				SELECT order_id, LAG(order_id) OVER (PARTITION BY customer ORDER BY id) AS before FROM payments
			) WHERE before > order_id`},
		{&o.deadLetters, `SELECT COUNT(*) FROM postbox_dead_letters`},
		{&o.events, `SELECT COUNT(*) FROM effects`},
		{&o.deliveries, `SELECT COUNT(*) FROM deliveries`},
		{&o.duplicates, `
			SELECT COUNT(*) FROM deliveries AS d JOIN effects AS e ON e.topic = d.topic AND e.message_id = d.message_id
			WHERE d.id > e.last_delivery`},
		{&o.ordered, `SELECT COALESCE(SUM(cents), 0) FROM orders`},
		{&o.charged, `SELECT COALESCE(SUM(charged), 0) FROM accounts`},
	} {
		if err := b.db.QueryRowContext(ctx, count.query).Scan(count.of); err != nil {
			return o, fmt.Errorf("count: %w: %s", err, count.query)
		}
	}
	o.kills = kills
	return o, nil
}

// summary says what happened, and ends with one line for programs to read.
func (o outcome) summary(took time.Duration) string {
	return fmt.Sprintf(`
What happened in %.0f seconds
  %6d orders were placed, each committed together with its event
  %6d times the shop was killed, and started again on the same file
  %6d deliveries brought the two modules %d events:
  %6d   did their work
  %6d   failed, or were cut off by a kill: rolled back, and delivered again
  %6d   were duplicates: the inbox knew the event, and the handler did not run

What came of it
  %6d orders without a payment or its confirmation
  %6d orders paid or confirmed twice
  %6d payments taken in another order than the customer placed the orders in
  %6d dead letters
  %s were charged for orders of %s

RESULT committed=%d applied=%d lost=%d applied_twice=%d duplicates_absorbed=%d kills=%d
`,
		took.Seconds(), o.committed, o.kills, o.deliveries, o.events, o.events,
		o.deliveries-o.events-o.duplicates, o.duplicates,
		o.lost, o.appliedTwice, o.outOfOrder, o.deadLetters, money(o.charged), money(o.ordered),
		o.committed, o.applied, o.lost, o.appliedTwice, o.duplicates, o.kills)
}

func money(cents int) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// verdict returns all that is not as it should be.
func (o outcome) verdict(p plan) error {
	var problems []error
	for what, wrong := range map[string]bool{
		"orders were lost":                     o.lost != 0,
		"orders were paid twice":               o.appliedTwice != 0,
		"payments were taken in another order": o.outOfOrder != 0,
		"there are dead letters":               o.deadLetters != 0,
		"other sums were charged than ordered": o.charged != o.ordered,
		"orders are missing":                   o.committed != p.Orders || o.applied != p.Orders,
		"the shop was not killed as planned":   o.kills != p.Kills,
		"no duplicate was delivered":           o.duplicates == 0,
	} {
		if wrong {
			problems = append(problems, errors.New(what))
		}
	}
	return errors.Join(problems...)
}
