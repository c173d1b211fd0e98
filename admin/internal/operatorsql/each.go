package operatorsql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A statement about each of many spools has columns that are subqueries, each with a limit. On
// PostgreSQL and SQLite these are of a row of {spools}, and one statement is for all spools.
// MariaDB knows that row in no subquery of a subquery: there the id is an argument of each column,
// and the text is repeated for each spool. To parse that takes a millisecond a spool. So the spools
// that have no more rows than the limit, as nearly all do, come from one statement without limits.

// together is how many spools one statement on MySQL or MariaDB is about.
const together = 25

// ofEach is the id of the spool in the columns of such a statement.
func (s *Statements) ofEach() string {
	if s.Kind == dialect.MySQL {
		return "?"
	}
	return "s.id"
}

// rowsOf are rows m of a spool, in the order of an index.
type rowsOf struct{ from, where, order string }

// column is what a statement says of such rows, up to a limit: a function of what it reads of each.
type column struct {
	function, reads string
	rowsOf
}

// upToLimit returns a statement with the id of a spool and these columns, and on MySQL one that
// returns the same of the spools that have no more rows than the limit, and no row of others.
func (s *Statements) upToLimit(columns ...column) (each, few string) {
	limited, whole, more := make([]string, len(columns)), make([]string, len(columns)), []string(nil)
	for i, c := range columns {
		limited[i] = "(SELECT " + fmt.Sprintf(c.function, "p.n") + " FROM (SELECT " + c.reads + " AS n FROM " + c.from +
			" WHERE m.spool = " + s.ofEach() + c.where + " " + c.order + " LIMIT {unseen ?}) p)"
		from := " FROM " + c.from + " WHERE m.spool = s.id" + c.where
		whole[i] = "(SELECT " + fmt.Sprintf(c.function, c.reads) + from + ")"
		if first := "(SELECT 1" + from + " " + c.order + " LIMIT 1 OFFSET ?) IS NULL"; !slices.Contains(more, first) {
			more = append(more, first)
		}
	}
	if s.Kind == dialect.MySQL {
		few = "SELECT s.id,\n       " + strings.Join(whole, ",\n       ") +
			"\nFROM {spools} s\nWHERE s.id IN ({numbers ?})\n  AND " + strings.Join(more, "\n  AND ")
	}
	return s.Text(s.eachSpool(limited...)), s.Text(few)
}

// ofFew returns the statement for those of some spools that have fewer rows than a limit, if there
// is one.
func (s *Statements) ofFew(text string, spools []int64, limit int) []dialect.Query {
	if text == "" {
		return nil
	}
	args := []any{s.Numbers(spools)}
	for range strings.Count(text, "OFFSET ?") {
		args = append(args, limit-1)
	}
	return []dialect.Query{{Text: text, Args: args}}
}

// eachSpool returns a statement with the id of a spool, and these columns.
func (s *Statements) eachSpool(columns ...string) string {
	list := "SELECT " + s.ofEach() + " AS spool,\n       " + strings.Join(columns, ",\n       ")
	if s.Kind == dialect.MySQL {
		return list
	}
	return list + "\nFROM {chosen}"
}

// ofSpools returns the statements for some spools, whose columns all have the same limit.
func (s *Statements) ofSpools(text string, spools []int64, columns, limit int) (queries []dialect.Query) {
	if s.Kind != dialect.MySQL {
		args := make([]any, columns, columns+1)
		for i := range args {
			args[i] = limit
		}
		return []dialect.Query{{Text: text, Args: append(args, s.Numbers(spools))}}
	}
	all := make([][]any, len(spools))
	for i, spool := range spools {
		all[i] = append(all[i], spool)
		for range columns {
			all[i] = append(all[i], spool, limit)
		}
	}
	return repeatedFor(text, all)
}

// repeatedFor returns the statements with a text for each list of arguments.
func repeatedFor(text string, all [][]any) (queries []dialect.Query) {
	for part := range slices.Chunk(all, together) {
		queries = append(queries, union(text, part))
	}
	return queries
}

// union returns one statement with a text for each list of arguments.
func union(text string, all [][]any) dialect.Query {
	return dialect.Query{Text: strings.Join(slices.Repeat([]string{text}, len(all)), "\nUNION ALL "), Args: slices.Concat(all...)}
}
