package receipts

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const (
	// overdueBatch is how many overdue receipts a step tells of. After a crash they are told of
	// again.
	overdueBatch = 100
	// overduePause is the time between two searches, and so how late an overdue receipt is noticed.
	// A search without a result reads one entry of an index.
	overduePause = 5 * time.Second
	// tellTimeout is how long a step tells of overdue receipts. It leaves time for writing down
	// which ones were told of, before the step ends, and before the lease of the task does.
	tellTimeout = spool.StatementTimeout / 2
	// hurry is the least part of that time that a call for a receipt which has just become overdue
	// has, after others that used up theirs.
	hurry = 16
)

// overdue is the search for awaited receipts whose time has passed. It is told of each one, and
// then written down that it was. A crash in between leaves the receipt awaited, so the next process
// tells of it again.
//
// A receipt whose call fails stays awaited. It comes again in a round over the failed ones, of
// which each step does one page. So the receipts that have become overdue since are told of first,
// however many others fail.
//
// A call that does not return before its context ends holds up those after it. So the next one has
// half of its time, until one returns in time. In the round over the failed ones a call has all of
// the time.
type overdue struct {
	db         *sql.DB
	statements *dialect.Statements
	logger     watermill.LoggerAdapter

	tell  func(ctx context.Context, overdue receipt.Stored) error
	most  time.Duration  // for how long a step tells of receipts
	next  time.Duration  // how long the next call may take, if it is the first one for its receipt
	fresh receipt.Stored // the last receipt that was told of for the first time; the zero value if no call has failed
	again receipt.Stored // the last receipt that was told of in the round over the failed ones; the zero value at its beginning
	until receipt.Stored // the last receipt of that round; the zero value if there is none

	failing bool // the last round had a failed call, which was logged
	failed  bool // this round has one
}

// work tells of a page of receipts that are overdue, and if there are no more than that, of a page
// of those whose calls have failed.
func (o *overdue) work(ctx context.Context) (pause time.Duration, err error) {
	telling, cancel := context.WithTimeout(ctx, o.most)
	defer cancel()
	_, more, err := o.page(ctx, telling, &o.fresh, nil)
	if err != nil || more {
		return 0, err
	}
	told, more := 0, false
	if o.until.Key != nil {
		if told, more, err = o.page(ctx, telling, &o.again, &o.until); err != nil {
			return 0, err
		}
	}
	if !more {
		o.failing, o.failed = o.failed, false
		if !o.failing { // the next search begins at the start, and so finds receipts that were written late, too
			o.fresh = receipt.Stored{}
		}
		o.again, o.until = receipt.Stored{}, o.fresh
	}
	if more && told > 0 {
		return 0, nil
	}
	return overduePause, nil // if all calls failed, what they need may be away
}

// page tells of the receipts after a cursor, up to the last one if it is given, and writes down
// which calls succeeded. It moves the cursor, and returns how many succeeded and whether there may
// be more.
func (o *overdue) page(ctx, telling context.Context, cursor, last *receipt.Stored) (n int, more bool, err error) {
	page := dialect.ReceiptPage{State: dialect.ReceiptAwaited, Key: cursor.Key, Limit: overdueBatch}
	if !cursor.DueAt.IsZero() {
		page.DueAt = cursor.DueAt.UnixMicro()
	}
	found, err := receipt.Page(ctx, o.db, o.statements, page)
	if err != nil {
		return 0, false, cleanup.AsLeft(err, o.statements)
	}
	more = len(found) == overdueBatch
	var told []receipt.Stored
	for _, r := range found {
		if last != nil && later(r, *last) {
			more = false
			break
		}
		if telling.Err() != nil {
			more = true
			break
		}
		*cursor = r
		if err := o.call(telling, r, last == nil); err != nil {
			o.report(r, err)
		} else {
			told = append(told, r)
		}
	}
	return len(told), more, o.miss(ctx, told)
}

// call tells of a receipt. The first call for it may have less time.
func (o *overdue) call(telling context.Context, r receipt.Stored, first bool) error {
	if !first {
		return spool.Recovered(func() error { return o.tell(telling, r) })
	}
	ctx, cancel := context.WithTimeout(telling, o.next)
	defer cancel()
	err := spool.Recovered(func() error { return o.tell(ctx, r) })
	if ctx.Err() == nil {
		o.next = o.most
	} else {
		o.next = max(o.next/2, o.most/hurry)
	}
	return err
}

// later reports whether a receipt comes after another one in the order of their due times.
func later(r, other receipt.Stored) bool {
	return cmp.Or(r.DueAt.Compare(other.DueAt), bytes.Compare(r.Key, other.Key)) > 0
}

// report logs the first of several failures in a row.
func (o *overdue) report(r receipt.Stored, err error) {
	fields := watermill.LogFields{"message_uuid": r.MessageID, "topic": r.Topic, "consumer": r.Consumer}
	if o.failing || o.failed {
		o.logger.Debug("Postbox could not tell of a receipt that is overdue: "+err.Error(), fields)
	} else {
		o.logger.Error("Postbox could not tell of a receipt that is overdue and goes on trying", err, fields)
	}
	o.failed = true
}

// miss writes down that receipts are missing, unless they have come meanwhile.
func (o *overdue) miss(ctx context.Context, told []receipt.Stored) error {
	if len(told) == 0 {
		return nil
	}
	return spool.InTx(ctx, o.db, o.statements, func(tx *sql.Tx) error {
		for _, r := range told {
			if _, err := spool.Directly(ctx, tx, o.statements.MissReceipt(r.Key)); err != nil {
				return err
			}
		}
		return nil
	})
}
