package dialect

import (
	"errors"
	"fmt"
	"strings"
)

// SourceStatements read a table written by watermill-sql v3 or v4, and delete the rows that were
// taken over. Its table names are inserted unchanged, because the configuration is trusted like SQL
// text.
type SourceStatements struct {
	Columns  string // → no row: its columns are those of the table of messages
	Register string // name: enters the source in {sources}
	// Lock locks the source's row of {sources} until the transaction ends, without waiting: one
	// process at a time takes rows over.
	Lock string // name → transaction id, offset, snapshot; no row while another transaction has it or it is missing
	// Groups reads the whole table of offsets, which has a row for each consumer group, up to a
	// limit.
	Groups   string // group → group, whether it is that one
	AddGroup string // group: enters it, at the beginning, unless it is there
	// Fence locks the row of a consumer group, without waiting, so that no other subscriber
	// consumes under its name until the transaction ends.
	Fence string // group → offset acked, last processed transaction id, next one to start; no row while another transaction has it

	save  string
	reads sourceReads
}

// SourceRow identifies a row of such a table: the transaction that wrote it, 0 if the table does
// not contain it, and its offset. Rows are ordered by both, in this order.
type SourceRow struct {
	Transaction int64
	Offset      int64
}

// SourceRange is the rows after After. On PostgreSQL it also contains the rows of the transactions
// in Late after the offset that each has there.
type SourceRange struct {
	After SourceRow
	Late  []SourceRow
}

// sourceReads are the statements whose arguments depend on the columns that identify a row in the
// table.
type sourceReads interface {
	peek(name string, r SourceRange) Query
	page(r SourceRange, limit int) Query
	remove(rows []SourceRow) Query
}

// Source returns the statements for a table of messages and its table of offsets.
func (s *Statements) Source(messages, offsets string) (*SourceStatements, error) {
	// After finish: the name of a topic, and so of a table, may contain a character that marks
	// arguments elsewhere.
	tables := newReplacer("{source}", messages, "{offsets}", offsets)
	var source *SourceStatements
	switch s.Kind {
	case PostgreSQL:
		source = postgresSource(s.Names, tables)
	case MySQL:
		source = mysqlSource(s.Names, tables)
	case SQLite:
		return nil, errors.New("watermill-sql has no schema for SQLite")
	default:
		return nil, fmt.Errorf("dialect %q is unknown", s.Kind)
	}
	source.Columns = tables.Replace("SELECT * FROM {source} WHERE 1 = 0")
	return source, nil
}

// Save stores the progress of a source: the row after which the next process continues.
func (s *SourceStatements) Save(name string, at SourceRow) Query {
	return Query{Text: s.save, Args: []any{at.Transaction, at.Offset, name}}
}

// Peek returns whether the range has a row, and the progress of the source, in one row. It returns
// no row if the source is not registered.
func (s *SourceStatements) Peek(name string, r SourceRange) Query { return s.reads.peek(name, r) }

// Page reads rows of the range, in order: transaction id, offset, uuid, payload, metadata. It walks
// the primary key and reads only the rows that it returns, whatever the size of the table.
func (s *SourceStatements) Page(r SourceRange, limit int) Query { return s.reads.page(r, limit) }

// Remove deletes rows by their primary key.
func (s *SourceStatements) Remove(rows []SourceRow) Query { return s.reads.remove(rows) }

// fillSource inserts first Postbox's table names, then the argument marks, then the tables of the
// source.
func fillSource(names Names, marks func(string) string, tables replacer, texts ...*string) {
	own := names.replacer()
	for _, text := range texts {
		*text = tables.Replace(marks(own.Replace(strings.TrimSpace(*text))))
	}
}
