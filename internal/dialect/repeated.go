package dialect

import (
	"cmp"
	"encoding/json"
	"math/bits"
	"strings"
	"sync"
)

// repeated builds the list statements of the databases without array arguments, MySQL and SQLite.
// Lists of numbers and words are passed as one JSON argument. For other values the text of the
// statement is repeated.
type repeated struct {
	insertHead, insertRow string
	insertFirst           string // the first row of an insert, if that is another one
	ready, due, meta      string // the three parts of a fetch
	turns                 [variants]string
	topics                string // the condition that leaves out excluded topics
	claimHead, claimRow   string
	claimedHead           string
	removed, kept, swept  statement
	unique                uniqueTexts
	fetches               *sync.Map // statements by shape
	portion               int       // maximum number of rows of an insert, a power of two; 0 means no limit
}

// newRepeated fills in the names.
func newRepeated(r repeated, fill replacer) repeated {
	r.claimHead, r.claimRow, r.claimedHead = claimHead, claimRow, claimedHead
	for _, text := range []*string{
		&r.insertHead, &r.insertFirst, &r.insertRow, &r.ready, &r.due, &r.meta, &r.topics, &r.claimHead, &r.claimRow, &r.claimedHead,
	} {
		*text = fill.Replace(fill.Replace(strings.TrimSpace(*text)))
	}
	for _, s := range []*statement{&r.removed, &r.kept, &r.swept} {
		*s = SQLite.marked(fill.Replace(fill.Replace(strings.TrimSpace(s.text))))
	}
	r.unique = r.unique.filled(func(text string) string { return fill.Replace(fill.Replace(text)) })
	for variant := range variants {
		r.turns[variant] = fill.Replace(turn(variant, Unblocked))
	}
	r.fetches = new(sync.Map)
	return r
}

func (r repeated) append(spool int64, rows []Row) []Query {
	return r.insert(r.insertHead, cmp.Or(r.insertFirst, r.insertRow), r.insertRow, len(rows), func(i int) []any {
		return rowValues(spool, rows[i])
	})
}

// rowValues returns the arguments for a row.
func rowValues(spool int64, row Row) []any {
	return []any{
		spool, row.Lane, row.State, row.KeyHash, row.Due, row.Due, row.Delay,
		row.Topic, row.MessageID, row.Key, row.Payload, row.Metadata,
	}
}

// insert inserts n rows: all at once, or in portions of few different sizes, whose texts are few
// enough to be kept prepared.
func (r repeated) insert(head, first, row string, n int, values func(i int) []any) []Query {
	var queries []Query
	for i := 0; i < n; {
		size := n - i
		if r.portion > 0 {
			size = min(r.portion, 1<<(bits.Len(uint(size))-1))
		}
		query := Query{Text: head + first + strings.Repeat(", "+row, size-1), Once: size > 1 && r.portion == 0}
		for end := i + size; i < end; i++ {
			query.Args = append(query.Args, values(i)...)
		}
		queries = append(queries, query)
	}
	return queries
}

// fetchShape holds everything on which the text of a fetch depends. On MySQL it is a part of
// mysqlShape.
type fetchShape struct {
	excluded bool
	variant  int
}

const unionAll = "\nUNION ALL\n"

// fetchOf returns a fetch that reads all lanes in one part.
func (r repeated) fetchOf(shape fetchShape) statement {
	if fetch, ok := r.fetches.Load(shape); ok {
		return fetch.(statement)
	}
	fetch := SQLite.marked(r.withTurns(shape, r.ready+unionAll+r.due+unionAll+r.meta))
	r.fetches.Store(shape, fetch)
	return fetch
}

// withTurns fills in the conditions of a shape.
func (r repeated) withTurns(shape fetchShape, text string) string {
	topics := ""
	if shape.excluded {
		topics = r.topics
	}
	return newReplacer("{turn}", r.turns[shape.variant], "{topics}", topics).Replace(text)
}

func (r repeated) remove(spool int64, refs []Ref) Query { return r.removed.with(r.refs(spool, refs)) }

func (r repeated) keep(spool int64, refs []Ref) Query { return r.kept.with(r.refs(spool, refs)) }

// asRead lists state, attempts, and the bounds of the starts after the columns of refs.
func (repeated) asRead(spool int64, messages []AsRead) args {
	tuples := make([][8]int64, len(messages))
	for i, m := range messages {
		tuples[i] = [8]int64{
			int64(m.Lane), m.Token, m.ID, m.CreatedAt, int64(m.State), int64(m.Attempts), int64(m.LeastStarts), int64(m.MostStarts),
		}
	}
	return args{"spool": spool, "refs": List(tuples)}
}

// refs lists lane, token, id and time of each ref.
func (repeated) refs(spool int64, refs []Ref) args {
	tuples := make([][4]int64, len(refs))
	for i, ref := range refs {
		tuples[i] = [4]int64{int64(ref.Lane), ref.Token, ref.ID, ref.CreatedAt}
	}
	return args{"spool": spool, "refs": List(tuples)}
}

func (repeated) numbers(list []int64) any { return List(list) }

func (repeated) nullable(list []*int64) any { return List(list) }

// List writes a list as a JSON array.
func List[T any](items []T) string {
	if len(items) == 0 {
		return "[]"
	}
	text, err := json.Marshal(items)
	if err != nil {
		panic("dialect: a list of numbers or words has no JSON: " + err.Error()) // cannot happen for these types
	}
	return string(text)
}
