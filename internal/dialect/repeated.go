package dialect

import (
	"encoding/json"
	"math/bits"
	"strings"
)

// repeated builds the list statements of the databases without array arguments, MySQL and SQLite.
// Lists of numbers and words are passed as one JSON argument. For other values the text of the
// statement is repeated.
type repeated struct {
	*Statements
	messages, claims rowsText
	portion          int // maximum number of rows of an insert, a power of two; 0 means no limit
}

// rowsText is an INSERT whose rows are repeated, with ? for each argument.
type rowsText struct{ head, first, further, tail string }

// rows returns a text whose row is all that follows VALUES in its line.
func (s *Statements) rows(name string) rowsText {
	head, rows, _ := strings.Cut(anyKind.marked(s.Raw(name)).text, "VALUES ")
	row, tail, _ := strings.Cut(rows, "\n")
	return rowsText{head: head + "VALUES ", first: row, further: row, tail: strings.TrimSuffix("\n"+tail, "\n")}
}

// text returns the text for a number of rows.
func (t rowsText) text(rows int) string {
	return t.head + t.first + strings.Repeat(", "+t.further, rows-1) + t.tail
}

func (r repeated) append(spool int64, rows []Row) []Query {
	return r.insert(r.messages, len(rows), func(i int) []any {
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
func (r repeated) insert(text rowsText, n int, values func(i int) []any) []Query {
	var queries []Query
	for i := 0; i < n; {
		size := n - i
		if r.portion > 0 {
			size = min(r.portion, 1<<(bits.Len(uint(size))-1))
		}
		query := Query{Text: text.text(size), Once: size > 1 && r.portion == 0}
		for end := i + size; i < end; i++ {
			query.Args = append(query.Args, values(i)...)
		}
		queries = append(queries, query)
	}
	return queries
}

// keep lists how long the handler took after the columns of refs.
func (r repeated) keep(spool int64, refs []Ref) Query {
	tuples := make([][5]int64, len(refs))
	for i, ref := range refs {
		tuples[i] = [5]int64{int64(ref.Lane), ref.Token, ref.ID, ref.CreatedAt, ref.took()}
	}
	return r.query("Keep", args{"spool": spool, "refs": List(tuples)})
}

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
