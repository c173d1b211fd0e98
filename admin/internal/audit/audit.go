// Package audit writes the audit log: who did what, in the transaction of its effect.
package audit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// The actions of operators.
const (
	ActPause       = "pause"
	ActResume      = "resume"
	ActSet         = "set"
	ActPauseKey    = "pause key"
	ActResumeKey   = "resume key"
	ActPauseTopic  = "pause topic"
	ActResumeTopic = "resume topic"
	ActRunNow      = "run now"
	ActReschedule  = "reschedule"
	ActBury        = "bury"
	ActRequeue     = "requeue"
	ActResolve     = "resolve"
	ActDelete      = "delete"
	ActEdit        = "edit"
	ActReplay      = "replay"
	ActDownload    = "download"
)

// Actions returns the names of all actions.
func Actions() []string {
	return []string{
		ActPause, ActResume, ActSet, ActPauseKey, ActResumeKey, ActPauseTopic, ActResumeTopic, ActRunNow, ActReschedule, ActBury,
		ActRequeue, ActResolve, ActDelete, ActEdit, ActReplay, ActDownload,
		"log setup", "log remove", // which package pgtail records
	}
}

// Act is one action of an operator, for the audit log.
type Act struct {
	// operation identifies the action, so that several transactions of one action have one row.
	operation string
	// Action is one word or two, such as "pause key".
	Action string
	// Target is the name of the spool, empty if the action concerns none or several.
	Target string
	// Subject is the one thing that the action concerns, such as "message 12"; empty for an action
	// on many things.
	Subject string
	// Filter is how an action on many things chose them.
	Filter string
	// Affected is how many things the current transaction changes: set it before [Auditor.Record].
	Affected int
	// Note is the rest of what should be known, such as the reason.
	Note string
}

// NewAct returns an action that begins now.
func NewAct(action, target string) *Act {
	return &Act{operation: postbox.NewMessageID(), Action: action, Target: target}
}

// On adds the one thing that the action concerns.
func (a *Act) On(format string, args ...any) *Act {
	a.Subject = fmt.Sprintf(format, args...)
	return a
}

// OnNamed adds the key or the topic that the action concerns, whole.
func (a *Act) OnNamed(kind, name string) *Act { return a.On("%s %q", kind, name) }

// Noting adds a note.
func (a *Act) Noting(note string) *Act {
	a.Note = note
	return a
}

// Choosing adds the filter by which an action on many things chooses them.
func (a *Act) Choosing(filter string) *Act {
	a.Filter = filter
	return a
}

// Changed reports whether a statement changed a row, and counts it.
func (a *Act) Changed(result sql.Result, err error) (bool, error) {
	n, err := spool.Affected(result, err)
	a.Affected = int(min(n, 1))
	return n > 0, err
}

// Auditor writes the audit log of one set of tables. It is safe for concurrent use.
type Auditor struct {
	statements *operatorsql.Statements
	actor      string
}

// NewAuditor returns an auditor. The actor is who acts if a context names no other one; empty means
// [spool.UserName].
func NewAuditor(statements *dialect.Statements, actor string) *Auditor {
	if actor == "" {
		actor = spool.UserName()
	}
	return &Auditor{statements: operatorsql.New(statements), actor: actor}
}

// Record writes the row of an action, in the transaction of its effect. Each action of an operator
// calls it once in each of its transactions:
//
//   - An action with one transaction creates its [Act] with [NewAct] outside of the transaction,
//     sets Affected inside (the number of things that have really changed, which may be 0), and
//     calls Record last. [Operator.change] calls it for the actions that it runs.
//   - An action with many transactions uses one Act for all of them. In each transaction it sets
//     Affected to the number of things that this transaction changes, and calls Record: the first
//     call inserts the row, and each later one adds to its number and replaces its note. So after a
//     crash the row says how many were changed. A page that changes nothing need not call it,
//     except the first: an action that found nothing leaves a row, too.
//
// Until [Auditor.End] the note of an action on many things says that it is not finished, and when
// it has got on last, also if its process is killed. A replay has its cursor in place of that.
//
// Record may be called again for a transaction that was rolled back.
func (a *Auditor) Record(ctx context.Context, tx *sql.Tx, act *Act) error {
	note := act.Note
	if act.Filter != "" && act.Action != ActReplay {
		note = unfinished(note, "not finished, last progress at "+time.Now().UTC().Format(time.RFC3339))
	}
	err := a.write(ctx, tx, dialect.AuditRow{
		Operation: act.operation, Actor: a.ActorIn(ctx), Action: act.Action, Target: act.Target,
		Subject: textOf(act.Subject), Filter: textOf(act.Filter), Affected: int64(act.Affected), Note: textOf(note),
	})
	if err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

// ActorIn returns who acts.
func (a *Auditor) ActorIn(ctx context.Context) string {
	return spool.NameText(cmp.Or(actorOf(ctx), a.actor))
}

// write adds to the row of an operation, or inserts it. MySQL does not count a row that gets the
// values that it has, so the first statement tells whether there is a row only if it adds
// something.
func (a *Auditor) write(ctx context.Context, tx *sql.Tx, row dialect.AuditRow) error {
	if row.Affected > 0 {
		added, err := spool.Affected(spool.Directly(ctx, tx, a.statements.AddToAct(row)))
		if err != nil || added > 0 {
			return err
		}
	}
	return spool.Run(ctx, tx, a.statements.RecordAct(row))
}

// StartAgain ends the note of an action on many things that has not come to its end.
const StartAgain = ": start it again for the rest"

func unfinished(note, why string) string { return strings.TrimPrefix(note+"; "+why+StartAgain, "; ") }

// End writes into the row of an action on many things that it has come to its end, or that it was
// stopped before. After another error the row says already that it is not finished.
func (a *Auditor) End(ctx context.Context, db *sql.DB, act *Act, err error) error {
	if err != nil && ctx.Err() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	note := act.Note
	if err != nil {
		note = unfinished(note, "stopped before its end")
	}
	return spool.InTx(ctx, db, a.statements.Statements, func(tx *sql.Tx) error {
		return spool.Run(ctx, tx, a.statements.AddToAct(dialect.AuditRow{Operation: act.operation, Note: textOf(note)}))
	})
}

// stopTimeout is how long the row of an action that was stopped may take.
const stopTimeout = 5 * time.Second

// askPause is the pause between two tries to ask what became of a transaction.
const askPause = 200 * time.Millisecond

// Committed reports whether the last transaction of an action was committed, if the answer to its
// commit was lost. That transaction must have changed the note of the action. If it has not ended,
// Committed waits for it. If the database does not answer, Committed asks again for a while.
func (a *Auditor) Committed(ctx context.Context, db *sql.DB, act *Act) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	for {
		var note string
		err := spool.InTx(ctx, db, a.statements.Statements, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, a.statements.LockAct, act.operation); err != nil {
				return err
			}
			return tx.QueryRowContext(ctx, a.statements.NoteOfAct, act.operation).Scan(&note)
		})
		switch {
		case err == nil:
			return note == textOf(act.Note), nil
		case errors.Is(err, sql.ErrNoRows): // the first transaction was rolled back
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("look in the audit log: %w", err)
		case <-time.After(askPause):
		}
	}
}

// textOf bounds a text and makes it fit for each database.
func textOf(text string) string {
	if text == "" {
		return ""
	}
	return spool.ErrorText(errors.New(text))
}

// actorKey is the key of an actor in a context.
type actorKey struct{}

// ContextWithActor returns a context in which the actor acts.
func ContextWithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

func actorOf(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}
