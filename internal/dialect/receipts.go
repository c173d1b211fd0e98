package dialect

import "strings"

// The states of a receipt.
const (
	ReceiptAwaited  = 0
	ReceiptMissing  = 1 // its time has passed, which was told
	ReceiptReceived = 2
)

// ReceiptRow is a receipt that a producer awaits.
type ReceiptRow struct {
	Key       []byte
	Topic     string
	MessageID []byte
	Consumer  string
	// Due is when the message may be published, if its producer gave a time; otherwise it may be
	// published Delay from now.
	Due   int64
	Delay int64
	// Within is how long after that the receipt is awaited.
	Within int64
}

// ReceivedRow is a receipt that has come.
type ReceivedRow struct {
	Key       []byte
	Topic     string
	MessageID []byte
	Consumer  string
	HandledAt int64
}

// ReceiptPage selects receipts of one state in the order of their times.
type ReceiptPage struct {
	State int
	// DueAt and Key are those of the last receipt of the page before.
	DueAt int64
	Key   []byte
	// Ahead is how long from now the last of them is due: 0 for those that are overdue.
	Ahead int64
	Limit int
}

// receiptColumns are what the statements that list receipts return.
const receiptColumns = `receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0)`

// awaitSizes are the numbers of rows of the texts that await receipts, the largest first. They are
// few enough to be kept prepared. SQLite has none above [insertPortion], see there.
var awaitSizes = [...]int{64, 8, 1}

// receipts sets the statements of receipts.
func (s *Statements) receipts() {
	// A receipt that came before is kept: the row of a message that another program published may
	// be older than what awaits it.
	const row = `(?, 0, ?, ?, ?, COALESCE({int ?}, {now} + ?), COALESCE({int ?}, {now} + ?))`
	for i, size := range awaitSizes {
		s.awaitReceipts[i] = `
{insert ignore} INTO {receipts} (receipt_key, state, topic, message_id, consumer, sent_at, due_at)
VALUES ` + row + strings.Repeat(", "+row, size-1) + ` {or ignore}`
	}

	s.changeReceipt.text = `
UPDATE {receipts} SET state = :state, handled_at = :handled_at, received_at = CASE WHEN {int :handled_at} IS NOT NULL THEN {now} END
WHERE receipt_key = :key AND state = :was`

	s.addReceipt = `
{insert ignore} INTO {receipts} (receipt_key, state, topic, message_id, consumer, due_at, handled_at, received_at)
VALUES (?, 2, ?, ?, ?, {now}, ?, {now}) {or ignore}`

	// By the index on state and time. The rows of the last time of the page before are read again.
	s.receiptPage = `
SELECT ` + receiptColumns + ` FROM {receipts}
WHERE state = ? AND due_at >= ? AND due_at <= (SELECT {now}) + {int ?} AND (due_at > ? OR receipt_key > ?)
ORDER BY state, due_at, receipt_key
LIMIT ?`

	// By the primary key, which begins with the message.
	s.receiptsOf = `
SELECT ` + receiptColumns + ` FROM {receipts}
WHERE receipt_key >= ? AND receipt_key <= ? AND message_id = ?
ORDER BY receipt_key
LIMIT ?`
}

// AwaitReceipts stores receipts that are awaited, unless they came before.
func (s *Statements) AwaitReceipts(rows []ReceiptRow) (queries []Query) {
	for i, size := range awaitSizes {
		if s.Kind.Can().OneWriter && size > insertPortion {
			continue
		}
		for ; len(rows) >= size; rows = rows[size:] {
			query := Query{Text: s.awaitReceipts[i]}
			for _, r := range rows[:size] {
				var sent, due *int64
				if r.Due > 0 {
					until := r.Due + r.Within
					sent, due = &r.Due, &until
				}
				query.Args = append(query.Args, r.Key, r.Topic, r.MessageID, r.Consumer, sent, r.Delay, due, r.Delay+r.Within)
			}
			queries = append(queries, query)
		}
	}
	return queries
}

// FulfilReceipt notes that a receipt has come that was in the given state.
func (s *Statements) FulfilReceipt(r ReceivedRow, state int) Query {
	return s.changeReceipt.with(args{"key": r.Key, "was": state, "state": ReceiptReceived, "handled_at": r.HandledAt})
}

// AddReceipt stores a receipt that has come, if it has no row.
func (s *Statements) AddReceipt(r ReceivedRow) Query {
	return Query{Text: s.addReceipt, Args: []any{r.Key, r.Topic, r.MessageID, r.Consumer, r.HandledAt}}
}

// MissReceipt notes that it was told that a receipt is overdue, unless it has come.
func (s *Statements) MissReceipt(key []byte) Query {
	return s.changeReceipt.with(args{"key": key, "was": ReceiptAwaited, "state": ReceiptMissing, "handled_at": nil})
}

// ReceiptPage returns the receipts of a page: key, topic, message id, consumer, state, times of
// sending, due, handling, receiving; 0 for none.
func (s *Statements) ReceiptPage(p ReceiptPage) Query {
	return Query{Text: s.receiptPage, Args: []any{p.State, p.DueAt, p.Ahead, p.DueAt, notNil(p.Key), p.Limit}}
}

// ReceiptsOf returns the same columns for the receipts of a message, whose keys are in a range.
func (s *Statements) ReceiptsOf(first, last, messageID []byte, limit int) Query {
	return Query{Text: s.receiptsOf, Args: []any{first, last, messageID, limit}}
}

// PurgeReceipts deletes receipts of a state.
func (s *Statements) PurgeReceipts(state int, p PurgeParams) Query {
	return Query{Text: s.purgeReceipts, Args: []any{state, p.Retention, p.Limit}}
}

// notNil returns an empty key instead of nil, which is NULL: no key compares as greater than NULL.
func notNil(key []byte) []byte {
	if key == nil {
		return []byte{}
	}
	return key
}
