package dialect

import "strconv"

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

// awaitSizes are the numbers of rows of the texts that await receipts, the largest first. They are
// few enough to be kept prepared. SQLite has none above [insertPortion], see there.
var awaitSizes = [...]int{64, 8, 1}

// AwaitReceipts stores receipts that are awaited, unless they came before.
func (s *Statements) AwaitReceipts(rows []ReceiptRow) (queries []Query) {
	for _, size := range awaitSizes {
		if s.Kind.Can().OneWriter && size > insertPortion {
			continue
		}
		for ; len(rows) >= size; rows = rows[size:] {
			query := Query{Text: s.awaitReceipts(size)}
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

// awaitReceipts returns the text for a number of rows.
func (s *Statements) awaitReceipts(size int) string {
	name := textName{"AwaitReceipts", strconv.Itoa(size)}
	if text, ok := s.made.Load(name); ok {
		return text.(string)
	}
	text := s.marks(s.rows("AwaitReceipts").text(size))
	s.made.Store(name, text)
	return text
}

// FulfilReceipt notes that a receipt has come that was in the given state.
func (s *Statements) FulfilReceipt(r ReceivedRow, state int) Query {
	return s.query("ChangeReceipt", args{"key": r.Key, "was": state, "state": ReceiptReceived, "handled_at": r.HandledAt})
}

// AddReceipt stores a receipt that has come, if it has no row.
func (s *Statements) AddReceipt(r ReceivedRow) Query {
	return s.query("AddReceipt", args{"key": r.Key, "topic": r.Topic, "message_id": r.MessageID, "consumer": r.Consumer, "handled_at": r.HandledAt})
}

// MissReceipt notes that it was told that a receipt is overdue, unless it has come.
func (s *Statements) MissReceipt(key []byte) Query {
	return s.query("ChangeReceipt", args{"key": key, "was": ReceiptAwaited, "state": ReceiptMissing, "handled_at": nil})
}

// ReceiptPage returns the receipts of a page: key, topic, message id, consumer, state, times of
// sending, due, handling, receiving; 0 for none.
func (s *Statements) ReceiptPage(p ReceiptPage) Query {
	return s.query("ReceiptPage", args{"state": p.State, "due_at": p.DueAt, "ahead": p.Ahead, "key": notNil(p.Key), "limit": p.Limit})
}

// ReceiptsOf returns the same columns for the receipts of a message, whose keys are in a range.
func (s *Statements) ReceiptsOf(first, last, messageID []byte, limit int) Query {
	return s.query("ReceiptsOf", args{"first": first, "last": last, "message_id": messageID, "limit": limit})
}

// PurgeReceipts deletes receipts of a state.
func (s *Statements) PurgeReceipts(state int, p PurgeParams) Query {
	return s.query("PurgeReceipts", args{"state": state, "retention": p.Retention, "limit": p.Limit})
}

// notNil returns an empty key instead of nil, which is NULL: no key compares as greater than NULL.
func notNil(key []byte) []byte {
	if key == nil {
		return []byte{}
	}
	return key
}
