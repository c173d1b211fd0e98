package dialect

import (
	"slices"
	"strings"
)

// A statement about each of many spools has columns that are subqueries, each with a limit. On
// PostgreSQL and SQLite these are of a row of {spools}, and one statement is for all spools.
// MariaDB knows that row in no subquery of a subquery: there the id is an argument of each column,
// and the text is repeated for each spool.

// together is how many spools one statement on MySQL or MariaDB is about.
const together = 25

// ofEach is the id of the spool in the columns of such a statement.
func (s *Statements) ofEach() string {
	if s.Kind == MySQL {
		return "?"
	}
	return "s.id"
}

// eachSpool returns a statement with the id of a spool, and these columns.
func (s *Statements) eachSpool(columns ...string) string {
	list := "SELECT " + s.ofEach() + " AS spool,\n       " + strings.Join(columns, ",\n       ")
	if s.Kind == MySQL {
		return list
	}
	return list + "\nFROM {spools} s\nWHERE {few} AND s.id IN ({numbers ?})"
}

// ofSpools returns the statements for some spools, whose columns all have the same limit.
func (s *Statements) ofSpools(text string, spools []int64, columns, limit int) (queries []Query) {
	if s.Kind != MySQL {
		args := make([]any, columns, columns+1)
		for i := range args {
			args[i] = limit
		}
		return []Query{{Text: text, Args: append(args, s.lists.numbers(spools))}}
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
func repeatedFor(text string, all [][]any) (queries []Query) {
	for part := range slices.Chunk(all, together) {
		queries = append(queries, Query{Text: strings.Repeat(text+"\nUNION ALL ", len(part)-1) + text, Args: slices.Concat(part...)})
	}
	return queries
}
