package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/admin/internal/counts"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const (
	// resumeNote and buryNote are failure entries with attempt 0, which record the action of an
	// operator.
	resumeNote = "resumed by an operator"
	buryNote   = "buried by an operator: "
	// resumePage is the number of parked messages of a key that one transaction resumes.
	resumePage = 100
)

// operator contains the commands and queries of operators for the spools of one set of tables. It
// is safe for concurrent use.
//
// A command commits its change together with a new version of the spool, by which the spool's
// drainers notice within a second. It also wakes them. If the answer to the commit is lost, the
// error is [postbox.ErrCommitUnknown].
type operator struct {
	db         *sql.DB
	statements *operatorsql.Statements
	audit      *audit.Auditor
	counts     *counts.Reader
	logger     watermill.LoggerAdapter
}

// newOperator returns an operator for a database.
func newOperator(db *sql.DB, statements *operatorsql.Statements, audit *audit.Auditor, logger watermill.LoggerAdapter) *operator {
	return &operator{db: db, statements: statements, audit: audit, counts: counts.NewReader(db, statements, counts.Cap), logger: logger}
}

// announce wakes the drainers of a spool.
func announce(ctx context.Context, db *sql.DB, s *spool.Spool, logger watermill.LoggerAdapter) {
	if err := s.Announce(ctx, db); err != nil {
		logger.Debug("Postbox could not notify other processes, which will find the change when they poll", watermill.LogFields{"err": spool.LogText(err)})
	}
}

// errInbox is returned for an action on pending messages of an inbox, which has none.
var errInbox = errors.New("an inbox has a history, and no pending messages: nothing of it can be paused, run or buried")

// Pause makes the drainers of a spool stop handing out messages. Running handlers continue.
func (o *operator) Pause(ctx context.Context, name string, pause operatorsql.Pause) error {
	act := audit.NewAct(audit.ActPause, name).Noting(noteOfPause(pause))
	return o.change(ctx, "pause", act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		return act.Changed(spool.Directly(ctx, tx, o.statements.PauseSpool(s.ID(), true, pause)))
	})
}

// Resume ends a pause.
func (o *operator) Resume(ctx context.Context, name string) error {
	act := audit.NewAct(audit.ActResume, name)
	return o.change(ctx, "resume", act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		return act.Changed(spool.Directly(ctx, tx, o.statements.PauseSpool(s.ID(), false, operatorsql.Pause{})))
	})
}

// Set changes the stored settings of a spool. No other operator changes them between what change
// gets and what it leaves, because the row of the spool is locked meanwhile. Settings that cannot
// be read count as none, as in [Overview].
func (o *operator) Set(ctx context.Context, name string, change func(*spool.Settings) error) error {
	act := audit.NewAct(audit.ActSet, name)
	return o.change(ctx, "set", act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		if _, err := tx.ExecContext(ctx, o.statements.LockSettings, s.ID()); err != nil {
			return false, err
		}
		var stored string
		if err := tx.QueryRowContext(ctx, o.statements.SettingsOf, s.ID()).Scan(&stored); err != nil {
			return false, err
		}
		settings, _ := spool.DecodeSettings(stored)
		if err := change(&settings); err != nil {
			return false, err
		}
		text, err := settings.Encode()
		if err != nil {
			return false, err
		}
		return act.Noting(text).Changed(spool.Directly(ctx, tx, o.statements.SetSettings(s.ID(), text)))
	})
}

// PauseKey makes the drainers of a spool stop handing out messages of a key.
func (o *operator) PauseKey(ctx context.Context, name, key string, pause operatorsql.Pause) error {
	what, act := fmt.Sprintf("pause key %.60q of", key), audit.NewAct(audit.ActPauseKey, name).OnNamed("key", key).Noting(noteOfPause(pause))
	return o.change(ctx, what, act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		return act.Changed(spool.Directly(ctx, tx, o.statements.PauseKey(keyOf(s, key), pause)))
	})
}

func keyOf(s *spool.Spool, key string) operatorsql.KeyRef {
	return operatorsql.KeyRef{Spool: s.ID(), Hash: keyhash.Of(key), Key: []byte(key)}
}

// ResumeKey ends the pause of a key, and gives its parked messages all their attempts again.
func (o *operator) ResumeKey(ctx context.Context, name, key string) error {
	what := fmt.Sprintf("resume key %.60q of", key)
	act := audit.NewAct(audit.ActResumeKey, name).OnNamed("key", key)
	err := o.change(ctx, what, act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		return act.Changed(spool.Directly(ctx, tx, o.statements.ResumeKey(keyOf(s, key))))
	})
	// Usually there is at most one. Each page is bounded, and a message that is parked again does
	// not come twice.
	parked := operatorsql.MessageFilter{
		Key: key, States: [2]int{dialect.StateRetrying, dialect.StateRetrying}, Parked: operatorsql.ParkedOnly, Limit: resumePage,
	}
	for more := true; err == nil && more; {
		var page []*storedMessage
		err = o.change(ctx, what, act, func(tx *sql.Tx, s *spool.Spool) (notice bool, err error) {
			act.Affected = 0 // of this page
			page, err = o.listed(ctx, tx, o.statements.RetryingOfKey(keyOf(s, key), parked))
			for _, m := range page {
				if err := o.unpark(ctx, tx, s, m.Place); err != nil {
					return false, err
				}
				act.Affected++
			}
			return false, err
		})
		if more = len(page) == parked.Limit; more {
			parked.After = page[len(page)-1].Place
		}
	}
	return err
}

// PausedKeys lists the paused keys of a spool, oldest pause first.
func (o *operator) PausedKeys(ctx context.Context, s *spool.Spool) ([]Paused, error) {
	return readPaused(ctx, o.db, o.statements.PausedKeys, s.ID(), func(name []byte) Paused { return Paused{Key: string(name)} })
}

// PausedTopics lists the paused topics of a spool, oldest pause first.
func (o *operator) PausedTopics(ctx context.Context, s *spool.Spool) ([]Paused, error) {
	return readPaused(ctx, o.db, o.statements.PausedTopics, s.ID(), topicOf)
}

func topicOf(name []byte) Paused { return Paused{Topic: string(name)} }

func readPaused(ctx context.Context, db spool.Querier, query string, id int64, of func(name []byte) Paused) (paused []Paused, err error) {
	err = spool.Each(ctx, db, dialect.Query{Text: query, Args: []any{id}}, func(scan spool.Scan) error {
		var name []byte
		var by, reason string
		var since, until int64
		err := scan(&name, &since, &by, &reason, &until)
		p := of(name)
		p.Since, p.By, p.Reason, p.Until = time.UnixMicro(since), by, reason, endOf(until)
		paused = append(paused, p)
		return err
	})
	if err != nil {
		return nil, spool.Wrap("list what is paused", err)
	}
	return paused, nil
}

// endOf is the end of a pause, zero for one without an end.
func endOf(at int64) time.Time {
	if at == dialect.Never {
		return time.Time{}
	}
	return time.UnixMicro(at)
}

// noteOfPause is what the audit log says of a pause.
func noteOfPause(p operatorsql.Pause) string {
	if p.Ends == 0 {
		return p.Reason
	}
	return strings.TrimPrefix(p.Reason+"; until "+time.UnixMicro(p.Ends).UTC().Format(time.RFC3339), "; ")
}

// change changes the target of an action in a transaction, and writes the row of the action, for
// which do sets the number of things that it changes. If do reports true, the spool's drainers are
// notified. The spool's row is locked last, to avoid deadlocks between operators.
func (o *operator) change(ctx context.Context, what string, act *audit.Act, do func(tx *sql.Tx, s *spool.Spool) (notice bool, err error)) error {
	name := act.Target
	if kind, _ := spool.Named(name); kind == spool.KindInbox && act.Action != audit.ActSet {
		return failedTo(what, name, invalid(errInbox))
	}
	s, err := o.find(ctx, name)
	if err == nil {
		err = spool.InTx(ctx, o.db, o.statements.Statements, func(tx *sql.Tx) error {
			notice, err := do(tx, s)
			if err == nil {
				err = o.audit.Record(ctx, tx, act)
			}
			if err != nil || !notice {
				return err
			}
			_, err = tx.ExecContext(ctx, o.statements.ChangeSpool, s.ID())
			return err
		})
	}
	if err != nil {
		return failedTo(what, name, err)
	}
	announce(ctx, o.db, s, o.logger)
	return nil
}

// Known returns [ErrNotFound], with the names that there are, unless there is a spool of this name.
func (o *operator) Known(ctx context.Context, name string) error {
	_, err := o.find(ctx, name)
	if err != nil {
		return fmt.Errorf("%s: %w", described(name), err)
	}
	return nil
}

// find returns a spool in its stored form.
func (o *operator) find(ctx context.Context, name string) (*spool.Spool, error) {
	if err := checkNamed(name); err != nil {
		return nil, err
	}
	id, err := int64(0), sql.ErrNoRows
	if spool.CheckName(name) == nil { // else PostgreSQL returns an error, and MySQL ignores spaces at the end
		id, err = spool.New(o.statements.Statements, name).Find(ctx, o.db, o.statements.FindSpool)
	}
	if err == nil {
		return spool.Registered(o.statements.Statements, name, id), nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	spools, err := o.spools(ctx)
	if err != nil {
		return nil, err
	}
	if len(spools) == 0 {
		return nil, fmt.Errorf("%w: there is no outbox and no queue yet", ErrNotFound)
	}
	names := make([]string, len(spools))
	for i, known := range spools {
		names[i] = known.Target.String()
	}
	return nil, fmt.Errorf("%w: there are %s", ErrNotFound, strings.Join(names, ", "))
}

// unpark makes a parked message due, unless another operator was faster.
func (o *operator) unpark(ctx context.Context, tx *sql.Tx, s *spool.Spool, at operatorsql.Place) error {
	found, err := o.lockListed(ctx, tx, s, at)
	if errors.Is(err, ErrNotFound) || (err == nil && !found.parked) {
		return nil
	}
	if err != nil {
		return err
	}
	return o.due(ctx, tx, s, found, 0)
}

// changed reports whether a statement changed a row.
func changed(result sql.Result, err error) (bool, error) {
	n, err := spool.Affected(result, err)
	return n > 0, err
}

// failedTo wraps an error about a spool.
func failedTo(what, name string, err error) error {
	return spool.Wrap(what+" "+described(name), err)
}
