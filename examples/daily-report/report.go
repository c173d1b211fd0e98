package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// makeReport adds the sales of a batch to the report of their day. The other batches of the day add
// theirs.
//
// Where it fails, all that it has written is rolled back, and it gets the halves of the batch, and
// so on, until the sale that made it fail is alone. A handler that knows the culprit can save that
// work: see queue.BatchError.
func (a *app) makeReport(ctx context.Context, batch []*message.Message) error {
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return postbox.ErrNoTransaction
	}
	stored, err := storedInQueue(ctx, tx)
	if err != nil {
		return err
	}
	report := totals{}
	for _, msg := range batch {
		var sold sale
		if err := json.Unmarshal(msg.Payload, &sold); err != nil {
			return fmt.Errorf("read sale %s: %w", msg.UUID, err)
		}
		midnight := a.endOfDay(stored[msg.UUID])
		_, err := tx.ExecContext(ctx, "INSERT INTO daily_report_lines (midnight, sale_id, cents) VALUES ($1, $2, $3)",
			midnight.UnixMicro(), sold.ID, sold.Cents)
		if err != nil {
			return fmt.Errorf("report a sale: %w", err)
		}
		report.add(midnight, sold)
	}
	return report.save(ctx, tx)
}

// totals are sales by day and currency.
type totals map[account]sum

type (
	account struct {
		midnight int64 // in microseconds
		currency string
	}
	sum struct{ sales, cents int64 }
)

func (t totals) add(midnight time.Time, sold sale) {
	of := account{midnight.UnixMicro(), sold.Currency}
	t[of] = sum{t[of].sales + 1, t[of].cents + sold.Cents}
}

func (t totals) save(ctx context.Context, tx *sql.Tx) error {
	for of, sum := range t {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO daily_report_reports AS r (midnight, currency, sales, cents, batches) VALUES ($1, $2, $3, $4, 1)
			ON CONFLICT (midnight, currency) DO UPDATE SET
				sales = r.sales + excluded.sales, cents = r.cents + excluded.cents, batches = r.batches + 1`,
			of.midnight, of.currency, sum.sales, sum.cents)
		if err != nil {
			return fmt.Errorf("save report: %w", err)
		}
	}
	return nil
}

// calendar knows when days end.
type calendar struct {
	ends cron.Schedule
	zone *time.Location
}

func newCalendar(schedule, zone string) (c calendar, err error) {
	if c.zone, err = time.LoadLocation(zone); err != nil {
		return c, err
	}
	// What queue.BatchConfig takes for a schedule.
	const fields = cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor
	c.ends, err = cron.NewParser(fields).Parse(schedule)
	return c, err
}

// endOfDay returns the first midnight after t.
func (c calendar) endOfDay(t time.Time) time.Time { return c.ends.Next(t.In(c.zone)) }
