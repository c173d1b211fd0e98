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

// letters sets the statements that look for dead letters.
func (s *Statements) letters() {
	// Walks the primary key, for the newest ones backwards. The limit bounds the page.
	letters := `
SELECT ` + deadLetterColumns + `
FROM {dead_letters} d
LEFT JOIN {spools} s ON s.id = d.spool
` + deadLetterChoice(s.Kind) + `
ORDER BY d.id`
	s.deadLetters = s.Named(letters + `
LIMIT :most`)
	s.newestLetters = s.Named(letters + ` DESC
LIMIT :most`)

	// A part of each error is enough, and bounds the bytes.
	s.deadLetterErrors = s.Named(`
SELECT d.id, d.died_at, COALESCE(s.name, '') AS spool_name, d.consumer, d.topic, SUBSTR(d.error, 1, 512)
FROM {dead_letters} d
LEFT JOIN {spools} s ON s.id = d.spool
` + deadLetterChoice(s.Kind) + `
ORDER BY d.id DESC
LIMIT :most`)

	// Walk the primary key.
	s.letterSearchEnd = s.Named(`
SELECT COUNT(*), COALESCE(MAX(p.id), 0) FROM (SELECT d.id FROM {dead_letters} d WHERE d.id > :after ORDER BY d.id LIMIT {unseen :among}) p`)
	s.newestSearchEnd = s.Named(`
SELECT COUNT(*), COALESCE(MIN(p.id), 0) FROM (SELECT d.id FROM {dead_letters} d WHERE d.id <= :up_to ORDER BY d.id DESC LIMIT {unseen :among}) p`)
}

// deadLetterChoice is true for what a filter selects. COALESCE keeps all letters of a spool unread.
func deadLetterChoice(k dialect.Kind) string {
	return `WHERE d.id > {unseen :after} AND d.id <= {unseen :up_to}
  AND ({text :topic} = '' OR d.topic = :topic)
  AND ({text :consumer} = '' OR d.consumer = :consumer)
  AND ({text :spool} = '' OR COALESCE(s.name, '') = :spool)
  AND ({length}({blob :message_id}) = 0 OR d.message_id = :message_id)
  AND ({length}({blob :key}) = 0 OR d.ordering_key = :key)
  AND ({text :error} = '' OR {position}(d.error, :error) > 0)
  AND d.cause >= ` + bound(k, "least_cause") + ` AND d.cause <= ` + bound(k, "most_cause") + `
  AND d.attempts >= ` + bound(k, "least_attempts") + ` AND d.attempts <= ` + bound(k, "most_attempts") + `
  AND d.died_at >= ` + bound(k, "died_from") + ` AND d.died_at < ` + bound(k, "died_before") + `
  AND CASE WHEN d.resolved_at IS NULL THEN 0 ELSE 1 END <> ` + bound(k, "unwanted")
}

// DeadLetters returns the dead letters that a filter selects, in its order: id, origin, subject,
// spool, its name, consumer, topic, message id, key, created at, died at, attempts, cause, error,
// resolved at, resolution, size.
func (s *Statements) DeadLetters(f DeadLetterFilter) dialect.Query {
	if f.NewestFirst {
		return s.newestLetters.With(f.args())
	}
	return s.deadLetters.With(f.args())
}

// DeadLetterErrors returns the newest dead letters that a filter selects, the latest first: id,
// died at, name of the spool, consumer, topic, the beginning of the error.
func (s *Statements) DeadLetterErrors(f DeadLetterFilter) dialect.Query {
	return s.deadLetterErrors.With(f.args())
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

// LetterSearchEnd returns how many of so many dead letters there are from the beginning of a filter
// on, in its order, and the id of the last of these.
func (s *Statements) LetterSearchEnd(f DeadLetterFilter, among int) dialect.Query {
	if f.NewestFirst {
		return s.newestSearchEnd.With(args{"up_to": f.upTo(), "among": among})
	}
	return s.letterSearchEnd.With(args{"after": f.After, "among": among})
}
