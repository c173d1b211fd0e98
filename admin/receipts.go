package admin

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

var receiptStatuses = map[int]string{
	dialect.ReceiptAwaited: "AWAITED", dialect.ReceiptMissing: "MISSING", dialect.ReceiptReceived: "RECEIVED",
}

// Receipt is what the producer knows about one consumer of one message: see package receipts.
type Receipt struct {
	Topic, MessageID, Consumer string
	// Status is "AWAITED" if the receipt has not come and its time-out has not been reported,
	// "MISSING" if it has not come, which was counted and reported, and "RECEIVED" if it has come:
	// the consumer has handled the message.
	Status string
	// SentAt is when the message was written to the outbox, or the time that its producer gave it,
	// and DueAt is until when the receipt was awaited. They are zero if nothing awaited it.
	SentAt, DueAt time.Time
	// HandledAt is when the consumer handled the message, by the clock of its process, and
	// ReceivedAt when the receipt was stored. They are zero if it has not come. The other times are
	// of the producer's database.
	HandledAt, ReceivedAt time.Time
}

func receiptOf(s receipt.Stored) Receipt {
	if s.SentAt.IsZero() {
		s.DueAt = time.Time{}
	}
	return Receipt{
		Topic: s.Topic, MessageID: s.MessageID, Consumer: s.Consumer, Status: receiptStatuses[s.State],
		SentAt: s.SentAt, DueAt: s.DueAt, HandledAt: s.HandledAt, ReceivedAt: s.ReceivedAt,
	}
}

// missingPage is how many rows a statement about missing receipts reads.
const missingPage = 1000

// Receipts lists the receipts that have not come: first those whose time-out was reported, then
// those that are still awaited and overdue, each in the order of their due times. It returns the
// cursor of the next page, which is empty after the last one. It reads by an index, in statements
// of up to 1000 rows each: as many as the page needs, and those that the filter leaves out.
//
// With [Filter.MessageID] it lists which consumers have handled this message, and which are still
// awaited, on all topics, as one page of at most 1000, which costs one read by an index. The page
// is empty if no receipt of the message has come, and none is awaited, or if they are older than
// the retention of the receiver.
func (a *Admin) Receipts(ctx context.Context, filter Filter) (list []Receipt, next string, err error) {
	limit, err := filter.listed(receipts)
	page, afterErr := cursor(filter.After).parseReceipt()
	err = errors.Join(err, afterErr)
	if one := filter.MessageID != ""; one && (filter.OlderThan != 0 || filter.After != "" || filter.Limit != 0) {
		err = errors.Join(err, errors.New("message id: its receipts are one page: leave older than, after and limit out"))
	}
	if err != nil {
		what := "missing receipts"
		if filter.MessageID != "" {
			what = "receipts"
		}
		return nil, "", fmt.Errorf("admin: list %s: %w", what, invalid(err))
	}
	if filter.MessageID != "" {
		list, err = a.receiptsOf(ctx, filter)
	} else {
		list, next, err = a.missing(ctx, filter, page, limit)
	}
	if err != nil {
		return nil, "", failed(err)
	}
	return list, next, nil
}

// receiptsOf lists the receipts of one message.
func (a *Admin) receiptsOf(ctx context.Context, filter Filter) ([]Receipt, error) {
	found, err := receipt.OfMessage(ctx, a.db, a.statements.Statements, filter.MessageID)
	list := make([]Receipt, 0, len(found))
	for _, s := range found {
		if filter.chooses(s, time.Time{}) {
			list = append(list, receiptOf(s))
		}
	}
	return list, err
}

// missing lists the receipts that have not come.
func (a *Admin) missing(ctx context.Context, filter Filter, page dialect.ReceiptPage, limit int) (missing []Receipt, next string, err error) {
	sentUntil, err := a.ago(ctx, filter.OlderThan)
	if err != nil {
		return nil, "", err
	}
	page.Limit = missingPage
	if filter.OlderThan > 0 {
		page.Ahead = farAhead.Microseconds()
	}
	for {
		found, err := receipt.Page(ctx, a.db, a.statements.Statements, page)
		if err != nil {
			return nil, "", err
		}
		for _, s := range found {
			page.DueAt, page.Key = s.DueAt.UnixMicro(), s.Key
			if filter.chooses(s, sentUntil) {
				missing = append(missing, receiptOf(s))
			}
			if len(missing) == limit {
				return missing, string(cursorOfReceipt(page)), nil
			}
		}
		switch {
		case len(found) == missingPage:
		case page.State == dialect.ReceiptMissing:
			page.State, page.DueAt, page.Key = dialect.ReceiptAwaited, 0, nil
		default:
			return missing, "", nil
		}
	}
}

// farAhead is later than each time at which a receipt can be due.
const farAhead = 200 * 365 * 24 * time.Hour

// chooses says whether the filter chooses a receipt.
func (f Filter) chooses(s receipt.Stored, sentUntil time.Time) bool {
	return (f.Topic == "" || f.Topic == s.Topic) && (f.Consumer == "" || f.Consumer == s.Consumer) &&
		(f.OlderThan == 0 || s.SentAt.Before(sentUntil))
}

// Now returns the time by the clock of the database. As [Filter.Until] of an action it leaves out
// what was written, done or dead after a question about the action.
func (a *Admin) Now(ctx context.Context) (time.Time, error) { return a.ago(ctx, 0) }

// ago returns the time so long before now, by the clock of the database.
func (a *Admin) ago(ctx context.Context, age time.Duration) (time.Time, error) {
	var now int64
	if err := a.db.QueryRowContext(ctx, a.statements.Clock).Scan(&now); err != nil {
		return time.Time{}, spool.Wrap("read the clock of the database", err)
	}
	return time.UnixMicro(now).Add(-age), nil
}

// receiptCursor is the format of the position of a receipt in the list of those that are missing.
const receiptCursor = "r%d-%d-%s"

func cursorOfReceipt(p dialect.ReceiptPage) cursor {
	return cursor(fmt.Sprintf(receiptCursor, p.State, p.DueAt, hex.EncodeToString(p.Key)))
}

// parseReceipt reads a position in the list of missing receipts.
func (p cursor) parseReceipt() (dialect.ReceiptPage, error) {
	page := dialect.ReceiptPage{State: dialect.ReceiptMissing}
	if p == "" {
		return page, nil
	}
	var key string
	_, err := fmt.Sscanf(string(p), receiptCursor, &page.State, &page.DueAt, &key)
	if err == nil {
		page.Key, err = hex.DecodeString(key)
	}
	if err != nil || cursorOfReceipt(page) != p || page.State < dialect.ReceiptAwaited || page.State > dialect.ReceiptMissing {
		return dialect.ReceiptPage{}, p.wrong()
	}
	return page, nil
}
