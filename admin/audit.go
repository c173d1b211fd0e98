package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ContextWithActor returns a context in which the actor acts: [Admin.Audit] shows the name with each action that is called with this context. A web
// application passes the name of the user who is logged in. Without an actor in the context it is [Config.Actor]. Nothing checks the name.
func ContextWithActor(ctx context.Context, actor string) context.Context {
	return audit.ContextWithActor(ctx, actor)
}

// AuditEntry is an action of an operator. An action that failed has none.
type AuditEntry struct {
	// ID identifies the entry. Later ones have higher ids.
	ID int64
	// At is when the action began, by the database's clock.
	At time.Time
	// Actor is who acted: see [ContextWithActor].
	Actor string
	// Action is what was done, in one word or two: "pause", "resume", "set", "pause key", "resume
	// key", "pause topic", "resume topic", "run now", "reschedule", "bury", "requeue", "resolve",
	// "delete", "edit" or "replay"; and "log setup" or "log remove" of package pgtail.
	Action string
	// Target is the outbox or the queue, and the zero value if the action has none or several.
	Target Target
	// Subject is the one thing that the action concerns, such as "message 12"; it is empty for an action on many things.
	Subject string
	// Filter is how an action on many things chose them.
	Filter string
	// Affected is the number of things that the action has changed. It is 0 if there was nothing to change, such as for a pause of a queue that
	// is paused. For an action on many things it is counted up in each of its transactions, so it is true also while the action
	// runs, and after a crash.
	Affected int
	// Note has the rest, such as the reason that the operator gave. Up to 4096 bytes are kept, and as many of Subject and Filter.
	Note string
}

// AuditFilter chooses the entries that match all fields that are set. The zero value chooses all.
type AuditFilter struct {
	// Target is the outbox or the queue.
	Target Target
	// Actor and Action must match the whole value. An action that does not exist is an error.
	Actor, Action string
	// From and Until bound the time of the action: the first is part of the span, the second is not.
	From, Until time.Time

	// Before chooses entries with lower ids, for the next page.
	Before int64
	// Limit is the largest number of entries on a page: 100 by default, and an error above 1000.
	Limit int
}

// Audit lists the actions of operators that match the filter, the latest first. Pass the last id as [AuditFilter.Before] to get the next page; a
// page shorter than the limit is the last. Every method of Admin that changes something writes an entry in the transaction of the
// change, so there is none without the other, whatever crashes.
//
// [postbox.Migrate] deletes entries that are older than a year. The cost of a page grows with its
// rows and with the rows that its filter leaves out. Audit fails with [ErrNotFound] if the filter
// names an outbox, a queue or an inbox that does not exist.
func (a *Admin) Audit(ctx context.Context, filter AuditFilter) ([]AuditEntry, error) {
	chosen, err := a.auditFilter(ctx, filter)
	if err != nil {
		return nil, err
	}
	entries, err := a.operator.Audit(ctx, chosen)
	if err != nil {
		return nil, failed(err)
	}
	return entries, nil
}

// RecordDownload writes an entry with the action "download", for a tool that gives a payload to
// somebody. The subject says which, such as "message 12" or "dead letter 5"; the target may be the
// zero value. The methods of Admin that read a payload do not record it, since they cannot know who
// sees it.
func (a *Admin) RecordDownload(ctx context.Context, target Target, subject string) error {
	if err := a.operator.RecordDownload(ctx, target.spool, subject); err != nil {
		return failed(err)
	}
	return nil
}

func (a *Admin) auditFilter(ctx context.Context, filter AuditFilter) (dialect.AuditFilter, error) {
	limit, err := pageLimit(filter.Limit)
	if filter.Before < 0 {
		err = errors.Join(err, fmt.Errorf("before: %d is negative: use an id that this list returned", filter.Before))
	}
	err = errors.Join(err, filter.Target.check(), checkText("actor", filter.Actor), checkAction(filter.Action),
		checkSpan("time", filter.From, filter.Until))
	if err != nil {
		return dialect.AuditFilter{}, fmt.Errorf("admin: read the audit log: %w", invalid(err))
	}
	return dialect.AuditFilter{
		Before: filter.Before, Actor: filter.Actor, Action: filter.Action, Target: filter.Target.spool,
		From: micros(filter.From), Until: micros(filter.Until), Limit: limit,
	}, a.known(ctx, filter.Target)
}

func checkAction(name string) error {
	if actions := audit.Actions(); name != "" && !slices.Contains(actions, name) {
		return fmt.Errorf("action: there is no %.60q: choose one of %s", name, strings.Join(actions, ", "))
	}
	return nil
}

// RecordDownload writes a row for a payload that somebody got.
func (o *operator) RecordDownload(ctx context.Context, name, subject string) error {
	act := audit.NewAct(audit.ActDownload, name).On("%s", subject)
	act.Affected = 1
	err := spool.InTx(ctx, o.db, o.statements, func(tx *sql.Tx) error { return o.audit.Record(ctx, tx, act) })
	if err != nil {
		return spool.Wrap("record a download", err)
	}
	return nil
}

// Audit returns the rows of the audit log that a filter selects, the latest first.
func (o *operator) Audit(ctx context.Context, filter dialect.AuditFilter) ([]AuditEntry, error) {
	query := o.statements.AuditRows(filter)
	rows, err := o.db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return nil, spool.Wrap("read the audit log", err)
	}
	defer func() { _ = rows.Close() }()
	entries := []AuditEntry{}
	for rows.Next() {
		var e AuditEntry
		var at int64
		if err := rows.Scan(&e.ID, &at, &e.Actor, &e.Action, &e.Target.spool, &e.Subject, &e.Filter, &e.Affected, &e.Note); err != nil {
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
