package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ContextWithActor returns a context in which the actor acts: [Admin.Audit] shows the name with
// each action that is called with this context. A web application passes the name of the user who
// is logged in. Without an actor in the context it is [Config.Actor]. Nothing checks the name.
func ContextWithActor(ctx context.Context, actor string) context.Context {
	return audit.ContextWithActor(ctx, actor)
}

// AuditEntry is an action of an operator. An action on one thing that failed has none.
type AuditEntry struct {
	// ID identifies the entry. Later ones have higher ids.
	ID int64 `json:"id"`
	// At is when the action began, by the database's clock.
	At time.Time `json:"at"`
	// Actor is who acted: see [ContextWithActor].
	Actor string `json:"actor"`
	// Action is what was done: "pause", "resume", "set", "pause key", "resume key", "pause topic",
	// "resume topic", "run now", "reschedule", "bury", "requeue", "resolve", "delete", "edit",
	// "replay" or "download"; and "log setup" or "log remove" of package pgtail.
	Action string `json:"action"`
	// Target is the outbox or the queue, and the zero value if the action has none or several.
	Target Target `json:"target,omitzero"`
	// Subject is the one thing that the action concerns, such as "message 12"; it is empty for an
	// action on many things.
	Subject string `json:"subject,omitempty"`
	// Filter is how an action on many things chose them.
	Filter string `json:"filter,omitempty"`
	// Affected is the number of things that the action has changed. It is 0 if there was nothing to
	// change, such as for a pause of a queue that is paused. For an action on many things it is
	// counted up in each of its transactions, so it is true also while the action runs, and after a
	// crash.
	Affected int `json:"affected"`
	// Note has the rest, such as the reason that the operator gave. Up to 4096 bytes are kept, and
	// as many of Subject and Filter.
	Note string `json:"note,omitempty"`
	// Rest is set for an action on many things that has not come to its end, because it still runs,
	// or was stopped, failed or died with its process: with it the same action goes on. All is true
	// then. A replay has its cursor in the note, and no Rest. Nor has a change of times, which
	// would choose again what it has changed. A status may select other messages by now.
	Rest Filter `json:"-"`
}

// rest is the filter of the things that an action has not reached, apart from those that have come
// since it began.
func (e AuditEntry) rest() Filter {
	of := pendingMessages
	if slices.Contains([]string{audit.ActRequeue, audit.ActResolve, audit.ActDelete}, e.Action) {
		of = deadLetters
	}
	f, err := of.described(e.Filter)
	limited := f.Limit > 0
	f.Limit -= min(f.Limit, e.Affected)
	again := e.Action == audit.ActReschedule || e.Action == audit.ActRunNow // they leave what they have changed among what matches
	if err != nil || again || !strings.HasSuffix(e.Note, audit.StartAgain) || limited && f.Limit == 0 {
		return Filter{}
	}
	if of.of != deadLetters.of {
		f.Target = e.Target
	}
	if began := e.At.Add(time.Microsecond); f.Until.IsZero() || f.Until.After(began) {
		f.Until = began
	}
	f.All = true
	return f
}

// Audit lists the actions of operators that match the filter, the latest first, and returns the
// cursor of the next page, which is empty after the last one. Every method of Admin that changes
// something writes an entry in the transaction of the change, so there is none without the other,
// whatever crashes.
//
// [postbox.Migrate] deletes entries that are older than a year. A page looks at up to 10,000
// entries: if few of them match, it is short or empty, and the list goes on all the same. Audit
// fails with [ErrNotFound] if the filter names an outbox, a queue or an inbox that does not exist.
func (a *Admin) Audit(ctx context.Context, filter Filter) (entries []AuditEntry, next string, err error) {
	limit, err := filter.listed(auditLog)
	before, idErr := cursor(filter.After).parseID(ofAudit)
	if err := errors.Join(err, idErr, filter.Target.check()); err != nil {
		return nil, "", fmt.Errorf("admin: read the audit log: %w", invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return nil, "", err
	}
	entries, last, err := a.operator.SearchAudit(ctx, operatorsql.AuditFilter{
		Before: before, Actor: filter.Actor, Action: filter.Action, Target: filter.Target.stored(),
		From: micros(filter.From), Until: micros(filter.Until), Limit: limit,
	}, searchAmong)
	if err != nil {
		return nil, "", failed(err)
	}
	return entries, idCursor(ofAudit, last), nil
}

// RecordDownload writes an entry with the action "download", for a tool that gives a payload to
// somebody. The subject says which, such as "message 12" or "dead letter 5"; the target may be the
// zero value. The methods of Admin that read a payload do not record it, since they cannot know who
// sees it.
func (a *Admin) RecordDownload(ctx context.Context, target Target, subject string) error {
	act := audit.NewAct(audit.ActDownload, target.stored()).On("%s", subject)
	act.Affected = 1
	err := spool.InTx(ctx, a.db, a.statements.Statements, func(tx *sql.Tx) error { return a.operator.audit.Record(ctx, tx, act) })
	if err != nil {
		return failed(spool.Wrap("record a download", err))
	}
	return nil
}

func checkAction(name string) error {
	if actions := audit.Actions(); name != "" && !slices.Contains(actions, name) {
		return fmt.Errorf("action: there is no %.60q: choose one of %s", name, strings.Join(actions, ", "))
	}
	return nil
}

// Audit returns the rows of the audit log that a filter selects, the latest first.
func (o *operator) Audit(ctx context.Context, filter operatorsql.AuditFilter) ([]AuditEntry, error) {
	entries := []AuditEntry{}
	err := spool.Each(ctx, o.db, o.statements.AuditRows(filter), func(scan spool.Scan) error {
		var e AuditEntry
		var at int64
		var target string
		err := scan(&e.ID, &at, &e.Actor, &e.Action, &target, &e.Subject, &e.Filter, &e.Affected, &e.Note)
		e.At, e.Target = time.UnixMicro(at), targetOf(target)
		e.Rest = e.rest()
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, spool.Wrap("read the audit log", err)
	}
	return entries, nil
}
