package dialect

import "math"

// DeadLetterFilter selects dead letters. The zero value of a field means any, except that Limit is required.
type DeadLetterFilter struct {
	After, UpTo           int64 // ids, the first exclusive, the second inclusive
	Topic, Consumer       string
	MessageID             string
	DiedAfter, DiedBefore int64 // the first inclusive, the second exclusive
	Resolved              Resolved
	Limit                 int
}

// Resolved says whether a filter selects dead letters that an operator has dealt with.
type Resolved int

// The values of Resolved in a [DeadLetterFilter].
const (
	ResolvedNo Resolved = iota
	ResolvedYes
	ResolvedAny
)

// DeadLetters returns the dead letters that a filter selects, in the order of their ids: id, origin, subject, spool,
// its name, consumer, topic, message id, key, created at, died at, attempts, error, resolved at, resolution, size.
func (s *Statements) DeadLetters(f DeadLetterFilter) Query {
	upTo, diedBefore := f.UpTo, f.DiedBefore
	if upTo == 0 {
		upTo = math.MaxInt64
	}
	if diedBefore == 0 {
		diedBefore = math.MaxInt64
	}
	least, most := 0, 1 // 1 is resolved
	switch f.Resolved {
	case ResolvedNo:
		most = 0
	case ResolvedYes:
		least = 1
	case ResolvedAny:
	}
	messageID := []byte(f.MessageID)
	return Query{Text: s.deadLetters, Args: []any{
		f.After, upTo, f.Topic, f.Topic, f.Consumer, f.Consumer, messageID, messageID,
		f.DiedAfter, diedBefore, least, most, f.Limit,
	}}
}
