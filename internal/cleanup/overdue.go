package cleanup

import (
	"context"
	"database/sql"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const (
	// overdueBatch is how many overdue receipts a step tells of. After a crash they are told of again.
	overdueBatch = 100
	// overduePause is the time between two searches, and so how late an overdue receipt is noticed. A search without a result reads one
	// entry of an index.
	overduePause = 5 * time.Second
	// tellTimeout is how long a step tells of overdue receipts. It leaves time for writing down which ones were told of, before the step
	// ends, and before the lease of the task does.
	tellTimeout = spool.StatementTimeout / 2
)

// purgeReceipts returns the task that deletes receipts which were due longer ago than the retention. An awaited receipt stays until it was
// told of.
func purgeReceipts(statements *dialect.Statements, retention time.Duration, batch int) work {
	params := dialect.PurgeParams{Retention: retention.Microseconds(), Limit: batch}
	queries := []dialect.Query{statements.PurgeReceipts(dialect.ReceiptReceived, params), statements.PurgeReceipts(dialect.ReceiptMissing, params)}
	return func(ctx context.Context, c *Cleaner, _ *task) (removed int, pause time.Duration, err error) {
		pause = c.config.Interval
		for _, query := range queries {
			n, err := c.delete(ctx, query)
			if err != nil {
				return removed, 0, err
			}
			if removed += n; n >= batch {
				pause = 0
			}
		}
		return removed, pause, nil
	}
}

// overdue is the search for awaited receipts whose time has passed. It is told of each one, and then written down that it was. A crash in
// between leaves the receipt awaited, so the next process tells of it again.
type overdue struct {
	tell    func(ctx context.Context, overdue receipt.Stored) error
	last    receipt.Stored // of the page before; the zero value at the beginning of a round
	failing bool           // the last round had a failed call, which was logged
	failed  bool           // this round has one
}

// work tells of a page of overdue receipts. A receipt whose call fails stays awaited, and its turn comes again in the next round, so it
// holds up no others.
func (o *overdue) work(ctx context.Context, c *Cleaner, _ *task) (removed int, pause time.Duration, err error) {
	page := dialect.ReceiptPage{State: dialect.ReceiptAwaited, Key: o.last.Key, Limit: overdueBatch}
	if !o.last.DueAt.IsZero() {
		page.DueAt = o.last.DueAt.UnixMicro()
	}
	found, err := receipt.Page(ctx, c.db, c.statements, page)
	if err != nil {
		return 0, 0, asLeft(err, c.statements)
	}
	told := o.tellOf(ctx, c, found)
	if err := o.miss(ctx, c, told); err != nil {
		return 0, 0, err
	}
	if len(found) < overdueBatch {
		o.last, o.failing, o.failed = receipt.Stored{}, o.failed, false
		return 0, min(overduePause, c.config.Interval), nil
	}
	o.last = found[len(found)-1]
	if len(told) == 0 { // all calls failed: what they need may be away
		return 0, min(overduePause, c.config.Interval), nil
	}
	return 0, 0, nil
}

// tellOf returns the receipts whose call succeeded.
func (o *overdue) tellOf(ctx context.Context, c *Cleaner, found []receipt.Stored) (told []receipt.Stored) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	for _, r := range found {
		err := ctx.Err()
		if err == nil {
			err = spool.Protect(func() error { return o.tell(ctx, r) })
		}
		if err == nil {
			told = append(told, r)
			continue
		}
		o.report(c, r, err)
	}
	return told
}

// report logs the first of several failures in a row.
func (o *overdue) report(c *Cleaner, r receipt.Stored, err error) {
	fields := watermill.LogFields{"message_uuid": r.MessageID, "topic": r.Topic, "consumer": r.Consumer}
	if o.failing || o.failed {
		c.logger.Debug("Postbox could not tell of a receipt that is overdue: "+err.Error(), fields)
	} else {
		c.logger.Error("Postbox could not tell of a receipt that is overdue and goes on trying", err, fields)
	}
	o.failed = true
}

// miss writes down that receipts are missing, unless they have come meanwhile.
func (o *overdue) miss(ctx context.Context, c *Cleaner, told []receipt.Stored) error {
	if len(told) == 0 {
		return nil
	}
	return spool.InTx(ctx, c.db, c.statements, func(tx *sql.Tx) error {
		for _, r := range told {
			if _, err := spool.Directly(ctx, tx, c.statements.MissReceipt(r.Key)); err != nil {
				return err
			}
		}
		return nil
	})
}
