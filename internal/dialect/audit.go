package dialect

import (
	"cmp"
	"math"
)

// AuditRow is a row of the audit log.
type AuditRow struct {
	Operation string // identifies the action: there is one row of it
	Actor     string
	Action    string
	Target    string // name of a spool, empty for none
	Subject   string
	Filter    string
	Affected  int64
	Note      string
}

// AuditFilter selects rows of the audit log. The zero value of a field means any, except that Limit
// is required.
type AuditFilter struct {
	Before, Least         int64 // ids, the first exclusive, the second inclusive
	Actor, Action, Target string
	From, Until           int64 // times, the first inclusive, the second exclusive
	Limit                 int
}

// audit sets the statements of the audit log.
func (s *Statements) audit() {
	// Two statements, because for one that inserts or updates MariaDB requires the right to update
	// every column.
	s.addToAct = `
UPDATE {audit} SET affected = affected + ?, note = ? WHERE operation = ?`

	s.recordAct = `
{insert ignore} INTO {audit} (operation, acted_at, actor, action, target, subject, filter, affected, note)
VALUES (?, {now}, ?, ?, ?, ?, ?, ?, ?) {or ignore}`

	// Waits for a transaction that has changed the row, without the rights that SELECT … FOR UPDATE
	// needs on MySQL.
	s.LockAct = `
UPDATE {audit} SET affected = affected WHERE operation = ?`

	s.NoteOfAct = `
SELECT note FROM {audit} WHERE operation = ?`

	// Walks the primary key backwards. The limit bounds the page. Rows that the filter leaves out
	// are still read. The sums keep databases from reading all rows of a span by the index on the
	// time, and sorting them.
	s.auditRows.text = `
SELECT id, acted_at, actor, action, target, subject, filter, affected, note
FROM {audit}
WHERE id < :before AND id >= :least AND acted_at + 0 >= :from AND acted_at + 0 < :until
  AND ({text :actor} = '' OR actor = :actor)
  AND ({text :action} = '' OR action = :action)
  AND ({text :target} = '' OR target = :target)
ORDER BY id DESC
LIMIT :most`

	s.auditSearchEnd = `
SELECT COUNT(*), COALESCE(MIN(p.id), 0) FROM (SELECT id FROM {audit} WHERE id < ? ORDER BY id DESC LIMIT {unseen ?}) p`
}

// AddToAct adds to the number of an operation that has a row, and replaces its note.
func (s *Statements) AddToAct(r AuditRow) Query {
	return Query{Text: s.addToAct, Args: []any{r.Affected, r.Note, r.Operation}}
}

// RecordAct adds a row to the audit log, unless the operation has one.
func (s *Statements) RecordAct(r AuditRow) Query {
	return Query{Text: s.recordAct, Args: []any{r.Operation, r.Actor, r.Action, r.Target, r.Subject, r.Filter, r.Affected, r.Note}}
}

// AuditRows returns the rows that a filter selects, the latest first: id, time, actor, action,
// target, subject, filter, number, note.
func (s *Statements) AuditRows(f AuditFilter) Query {
	return s.auditRows.with(args{
		"before": f.before(), "least": f.Least, "from": f.From, "until": cmp.Or(f.Until, math.MaxInt64), "actor": f.Actor, "action": f.Action, "target": f.Target, "most": f.Limit,
	})
}

func (f AuditFilter) before() int64 { return cmp.Or(f.Before, math.MaxInt64) }

// AuditSearchEnd returns how many of so many rows there are before that of the filter, and the id
// of the last of these.
func (s *Statements) AuditSearchEnd(f AuditFilter, among int) Query {
	return Query{Text: s.auditSearchEnd, Args: []any{f.before(), among}}
}

// PurgeAudit deletes rows of the audit log.
func (s *Statements) PurgeAudit(p PurgeParams) Query {
	return Query{Text: s.purgeAudit, Args: []any{p.Retention, p.Limit}}
}
