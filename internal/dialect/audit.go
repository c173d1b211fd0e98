package dialect

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
}

// AddToAct adds to the number of an operation that has a row, and replaces its note.
func (s *Statements) AddToAct(r AuditRow) Query {
	return Query{Text: s.addToAct, Args: []any{r.Affected, r.Note, r.Operation}}
}

// RecordAct adds a row to the audit log, unless the operation has one.
func (s *Statements) RecordAct(r AuditRow) Query {
	return Query{Text: s.recordAct, Args: []any{r.Operation, r.Actor, r.Action, r.Target, r.Subject, r.Filter, r.Affected, r.Note}}
}

// PurgeAudit deletes rows of the audit log.
func (s *Statements) PurgeAudit(p PurgeParams) Query {
	return Query{Text: s.purgeAudit, Args: []any{p.Retention, p.Limit}}
}
