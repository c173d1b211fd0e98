package receipt

import (
	"context"
	"database/sql"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Stored is a receipt that a producer awaits, or has received.
type Stored struct {
	Key       []byte
	Topic     string
	MessageID string
	Consumer  string
	State     int // a constant of package dialect
	// SentAt is zero if the receipt was not awaited. HandledAt and ReceivedAt are zero until it has
	// come.
	SentAt, DueAt, HandledAt, ReceivedAt time.Time
}

// maxOfMessage bounds the receipts of a message that are listed.
const maxOfMessage = 1000

// OfMessage returns the receipts of a message on all topics, at most 1000.
func OfMessage(ctx context.Context, db *sql.DB, statements *dialect.Statements, messageID string) ([]Stored, error) {
	first, last := keys(messageID)
	return list(ctx, db, statements.ReceiptsOf(first, last, []byte(messageID), maxOfMessage))
}

// Page returns a page of receipts of one state.
func Page(ctx context.Context, db *sql.DB, statements *dialect.Statements, page dialect.ReceiptPage) ([]Stored, error) {
	return list(ctx, db, statements.ReceiptPage(page))
}

func list(ctx context.Context, db *sql.DB, query dialect.Query) (found []Stored, err error) {
	err = spool.Each(ctx, db, query, func(scan spool.Scan) error {
		var s Stored
		var messageID []byte
		var sent, due, handled, received int64
		err := scan(&s.Key, &s.Topic, &messageID, &s.Consumer, &s.State, &sent, &due, &handled, &received)
		s.MessageID = string(messageID)
		s.SentAt, s.DueAt, s.HandledAt, s.ReceivedAt = moment(sent), moment(due), moment(handled), moment(received)
		found = append(found, s)
		return err
	})
	if err != nil {
		return nil, spool.Wrap("list receipts", err)
	}
	return found, nil
}

func moment(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}
