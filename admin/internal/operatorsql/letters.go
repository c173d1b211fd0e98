package operatorsql

import (
	"cmp"
	"math"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// DeadLetterFilter selects dead letters. The zero value of a field means any, except that Limit is
// required.
type DeadLetterFilter struct {
	After, UpTo           int64 // ids, the first exclusive, the second inclusive
	Topic, Consumer       string
	Spool                 string // its name
	MessageID, Key        string
	ErrorText             string           // a part of the error
	Causes                [2]dialect.Cause // the first and the last one, if there is any; the zero value means any, so {-1, CauseUnknown} is for letters without a cause
	MinAttempts           int
	MaxAttempts           int
	DiedAfter, DiedBefore int64 // the first inclusive, the second exclusive
	Resolved              Resolved
	NewestFirst           bool
	Limit                 int
	// Shape is that of the error. No statement knows it: package admin compares it.
	Shape string
}

// Resolved says whether a filter selects dead letters that an operator has dealt with.
type Resolved int

// The values of Resolved in a [DeadLetterFilter].
const (
	ResolvedNo Resolved = iota
	ResolvedYes
	ResolvedAny
)

// DeadLetters returns the dead letters that a filter selects, in its order: id, origin, subject,
// spool, its name, consumer, topic, message id, key, created at, died at, attempts, cause, error,
// resolved at, resolution, size.
func (s *Statements) DeadLetters(f DeadLetterFilter) dialect.Query {
	if f.NewestFirst {
		return s.own.Query("DeadLetters", f.args(), "newest")
	}
	return s.query("DeadLetters", f.args())
}

// DeadLetterErrors returns the newest dead letters that a filter selects, the latest first: id,
// died at, name of the spool, consumer, topic, the beginning of the error.
func (s *Statements) DeadLetterErrors(f DeadLetterFilter) dialect.Query {
	return s.query("DeadLetterErrors", f.args())
}

// args returns the arguments of both.
func (f DeadLetterFilter) args() args {
	diedBefore := f.DiedBefore
	if diedBefore == 0 {
		diedBefore = math.MaxInt64
	}
	unwanted := int64(-1) // 0 is open, and 1 is resolved
	switch f.Resolved {
	case ResolvedNo:
		unwanted = 1
	case ResolvedYes:
		unwanted = 0
	case ResolvedAny:
	}
	causes, maxAttempts := f.Causes, f.MaxAttempts
	if causes == ([2]dialect.Cause{}) {
		causes[1] = math.MaxInt16
	}
	if maxAttempts == 0 {
		maxAttempts = math.MaxInt32
	}
	return args{
		"after": f.After, "up_to": f.upTo(), "topic": f.Topic, "consumer": f.Consumer, "spool": f.Spool,
		"message_id": []byte(f.MessageID), "key": []byte(f.Key), "error": f.ErrorText, "most": f.Limit,
		"bounds": bounds{
			"least_cause": int64(causes[0]), "most_cause": int64(causes[1]),
			"least_attempts": int64(f.MinAttempts), "most_attempts": int64(maxAttempts),
			"died_from": f.DiedAfter, "died_before": diedBefore, "unwanted": unwanted,
		}.list(),
	}
}

func (f DeadLetterFilter) upTo() int64 { return cmp.Or(f.UpTo, math.MaxInt64) }

// LetterEnds returns how many of so many dead letters there are within the bounds of a filter, in
// its order, and the lowest and the highest id of these, 0 without one.
func (s *Statements) LetterEnds(f DeadLetterFilter, among int) dialect.Query {
	values := args{"after": f.After, "up_to": f.upTo(), "among": among}
	if f.NewestFirst {
		return s.own.Query("LetterEnds", values, "newest")
	}
	return s.query("LetterEnds", values)
}
