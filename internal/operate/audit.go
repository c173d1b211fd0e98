package operate

import (
	"context"
	"database/sql"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// AuditEntry is a row of the audit log.
type AuditEntry struct {
	ID       int64
	At       time.Time
	Actor    string
	Action   string
	Target   string // name of a spool, empty for none
	Subject  string
	Filter   string
	Affected int
	Note     string
}

// RecordDownload writes a row for a payload that somebody got.
func (o *Operator) RecordDownload(ctx context.Context, name, subject string) error {
	act := audit.NewAct(audit.ActDownload, name).On("%s", subject)
	act.Affected = 1
	err := spool.InTx(ctx, o.db, o.statements, func(tx *sql.Tx) error { return o.audit.Record(ctx, tx, act) })
	if err != nil {
		return spool.Wrap("record a download", err)
	}
	return nil
}

// Audit returns the rows of the audit log that a filter selects, the latest first.
func (o *Operator) Audit(ctx context.Context, filter dialect.AuditFilter) ([]AuditEntry, error) {
	query := o.statements.AuditRows(filter)
	rows, err := o.db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return nil, spool.Wrap("read the audit log", err)
	}
	defer func() { _ = rows.Close() }()
	var entries []AuditEntry
	for rows.Next() {
		var e AuditEntry
		var at int64
		if err := rows.Scan(&e.ID, &at, &e.Actor, &e.Action, &e.Target, &e.Subject, &e.Filter, &e.Affected, &e.Note); err != nil {
			return nil, spool.Wrap("read the audit log", err)
		}
		e.At = time.UnixMicro(at)
		entries = append(entries, e)
	}
	if err := rows.Err(); err != nil {
		return nil, spool.Wrap("read the audit log", err)
	}
	return entries, nil
}
