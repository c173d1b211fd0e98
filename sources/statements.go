package sources

import (
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// statements read a table written by watermill-sql v3 or v4, and delete the rows that were taken
// over. Its table names are inserted unchanged, because the configuration is trusted like SQL text.
type statements struct {
	columns  string // → no row: its columns are those of the table of messages
	register string // name: enters the source in {sources}
	// lock locks the source's row of {sources} until the transaction ends, without waiting: one
	// process at a time takes rows over.
	lock string // name → transaction id, offset, snapshot; no row while another transaction has it or it is missing
	save string
	// groups reads the whole table of offsets, which has a row for each consumer group, up to a
	// limit.
	groups   string // group → group, whether it is that one
	addGroup string // group: enters it, at the beginning, unless it is there
	// fence locks the row of a consumer group, without waiting, so that no other subscriber
	// consumes under its name until the transaction ends.
	fence string // group → offset acked, last processed transaction id, next one to start; no row while another transaction has it

	peek, page, remove string
	rows               identification
}

// rowID identifies a row of such a table: the transaction that wrote it, 0 if the table does not
// contain it, and its offset. Rows are ordered by both, in this order.
type rowID struct {
	Transaction int64
	Offset      int64
}

// identification makes arguments of what identifies a row in the table.
type identification interface {
	peek(name string, r position) []any
	page(r position, limit int) []any
	remove(rows []rowID) []any
}

// statementsFor returns the statements for a table of messages and its table of offsets, in the
// database of an outbox.
func statementsFor(outbox *dialect.Statements, messages, offsets string) *statements {
	s := mysqlStatements()
	if outbox.Kind == dialect.PostgreSQL {
		s = postgresStatements()
	}
	s.columns = "SELECT * FROM {source} WHERE 1 = 0"
	tables := strings.NewReplacer("{source}", messages, "{offsets}", offsets)
	for _, text := range []*string{&s.columns, &s.register, &s.lock, &s.save, &s.groups, &s.addGroup, &s.fence, &s.peek, &s.page, &s.remove} {
		*text = tables.Replace(outbox.Fill(strings.TrimSpace(*text)))
	}
	return s
}

// Save stores the progress of a source: the row after which the next process continues.
func (s *statements) Save(name string, at rowID) dialect.Query {
	return dialect.Query{Text: s.save, Args: []any{at.Transaction, at.Offset, name}}
}

// Peek returns whether there are rows after a position, and the progress of the source, in one row.
// It returns no row if the source is not registered.
func (s *statements) Peek(name string, r position) dialect.Query {
	return dialect.Query{Text: s.peek, Args: s.rows.peek(name, r)}
}

// Page reads rows after a position, in order: transaction id, offset, uuid, payload, metadata. It
// walks the primary key and reads only the rows that it returns, whatever the size of the table.
func (s *statements) Page(r position, limit int) dialect.Query {
	return dialect.Query{Text: s.page, Args: s.rows.page(r, limit)}
}

// Remove deletes rows by their primary key.
func (s *statements) Remove(rows []rowID) dialect.Query {
	return dialect.Query{Text: s.remove, Args: s.rows.remove(rows)}
}
