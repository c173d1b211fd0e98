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

// RecordAct adds a row to the audit log, unless the operation has one.
func (s *Statements) RecordAct(r AuditRow) Query {
	return s.query("RecordAct", args{"operation": r.Operation, "actor": r.Actor, "action": r.Action, "target": r.Target, "subject": r.Subject, "filter": r.Filter, "affected": r.Affected, "note": r.Note})
}

// PurgeAudit deletes rows of the audit log.
func (s *Statements) PurgeAudit(p PurgeParams) Query {
	return s.query("PurgeAudit", args{"retention": p.Retention, "limit": p.Limit})
}
