package operate

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// pendingBulk is a running action on the pending messages that a filter selects, page by page in the order of their list. Messages only move
// forward in that order, so none is missed that is pending all the while.
//
// Each transaction locks its messages in that order, so operators who run the same action at once wait for each other, and each message
// is changed once.
type pendingBulk struct {
	operator *Operator
	act      *audit.Act
	what     string
	most     int // 0: no limit
	// headsFirst: see passes.
	headsFirst bool
	// has reports whether a locked message is already as the action would make it, so that it does not count: a message that the action has changed
	// comes again if it was moved to another lane meanwhile. nil is never.
	has func(found locked) bool
	// one changes a locked message, and reports whether the drainers of the spool should notice.
	one    func(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked) (notice bool, err error)
	report func(Progress)

	filter   dialect.MessageFilter
	progress Progress
}

// run returns the progress also with an error.
func (b *pendingBulk) run(ctx context.Context) (Progress, error) {
	progress, err := b.all(ctx)
	if err != nil {
		err = errors.Join(err, b.operator.audit.Stopped(ctx, b.operator.db, b.act))
	}
	return progress, err
}

// all ignores messages that are written after it began, so that it ends although producers go
// on. When ctx ends, it finishes the running transaction.
func (b *pendingBulk) all(ctx context.Context) (Progress, error) {
	if err := b.part(ctx, nil); err != nil { // the row of the action, also if it finds nothing
		return b.progress, err
	}
	var now int64
	if err := b.operator.db.QueryRowContext(ctx, b.operator.statements.Clock).Scan(&now); err != nil {
		return b.progress, failedTo(b.what, b.act.Target, err)
	}
	if b.filter.CreatedBefore == 0 || b.filter.CreatedBefore > now {
		b.filter.CreatedBefore = now + 1
	}
	b.filter.Limit = bulkPage
	for _, states := range b.passes() {
		b.filter.States, b.filter.After = states, dialect.Place{}
		if err := b.pass(ctx); err != nil {
			return b.progress, err
		}
	}
	return b.progress, nil
}

// passes returns the states in the order in which an action takes them. The failed message of a key is older than the ready ones that wait for it, so
// headsFirst keeps the order of a key. Messages that fail meanwhile are in the last pass.
func (b *pendingBulk) passes() [][2]int {
	least, most := b.filter.States[0], b.filter.States[1]
	if !b.headsFirst || most != dialect.StateRetrying || least == most {
		return [][2]int{{least, most}}
	}
	heads := [2]int{dialect.StateRetrying, dialect.StateRetrying}
	return [][2]int{heads, {least, most - 1}, heads}
}

// pass goes through the pages of a list.
func (b *pendingBulk) pass(ctx context.Context) error {
	for b.left() > 0 {
		page, err := b.operator.Messages(ctx, b.act.Target, b.filter)
		if err == nil {
			err = b.page(ctx, page)
		}
		if err != nil || len(page) < b.filter.Limit {
			return err
		}
		b.filter.After = page[len(page)-1].Place
	}
	return nil
}

func (b *pendingBulk) left() int { return left(b.most, b.progress.Done) }

func (b *pendingBulk) page(ctx context.Context, page []*Listed) error {
	return inParts(ctx, page, func(m *Listed) int { return m.Size }, b.left, func(messages []*Listed) error {
		if err := b.part(ctx, messages); err != nil {
			return err
		}
		b.report(b.progress)
		return nil
	})
}

// part changes messages in one transaction, with the row of the action.
func (b *pendingBulk) part(ctx context.Context, messages []*Listed) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	err := b.operator.change(ctx, b.what, b.act, func(tx *sql.Tx, s *spool.Spool) (notice bool, err error) {
		b.act.Affected = 0
		for _, m := range messages {
			found, err := b.operator.lockListed(ctx, tx, s, m.Place)
			if errors.Is(err, ErrNotFound) {
				continue // a handler or another operator was faster
			}
			if err != nil {
				return false, err
			}
			if matches, err := b.stillMatches(ctx, tx, m, found); err != nil {
				return false, err
			} else if !matches || b.has != nil && b.has(found) {
				continue
			}
			dueSoon, err := b.one(ctx, tx, s, found)
			if err != nil {
				return false, err
			}
			notice = notice || dueSoon
			b.act.Affected++
		}
		return notice, nil
	})
	if err == nil {
		b.progress.Done += b.act.Affected
	}
	return err
}

// stillMatches reports whether a message that was listed is the same, and still matches the filter now that it is locked: it may have failed once more
// since. Its topic, key, id and time of creation never change.
func (b *pendingBulk) stillMatches(ctx context.Context, tx *sql.Tx, listed *Listed, found locked) (bool, error) {
	filter := b.filter
	parked := filter.Parked == dialect.ParkedAny || (filter.Parked == dialect.ParkedOnly) == found.parked
	if found.ref.CreatedAt != listed.CreatedAt.UnixMicro() || found.ref.State < filter.States[0] || found.ref.State > filter.States[1] ||
		!parked || found.attempts < filter.MinAttempts {
		return false, nil
	}
	if filter.ErrorText == "" {
		return true, nil
	}
	failures, err := readFailures(ctx, tx, b.operator.statements, spool.MessageSubject(found.ref.ID, found.ref.CreatedAt), 1)
	return len(failures) == 1 && strings.Contains(failures[0].Error, filter.ErrorText), err
}

// RunAllNow makes the waiting messages due that a filter selects, at most the given number (0: no limit). The filter must select no ready ones.
func (o *Operator) RunAllNow(ctx context.Context, name string, filter dialect.MessageFilter, most int, chosen string, report func(Progress)) (Progress, error) {
	b := &pendingBulk{operator: o, act: audit.NewAct(audit.ActRunNow, name).Choosing(chosen), what: "run messages of", most: most, report: report, filter: filter}
	b.has = func(found locked) bool { return found.due }
	b.one = func(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked) (bool, error) {
		return false, o.due(ctx, tx, s, found, 0)
	}
	return b.run(ctx)
}

// RescheduleAll makes the waiting messages that a filter selects due at the given time. The filter must select no ready ones.
func (o *Operator) RescheduleAll(
	ctx context.Context, name string, filter dialect.MessageFilter, most int, chosen string, at time.Time, report func(Progress),
) (Progress, error) {
	act := audit.NewAct(audit.ActReschedule, name).Choosing(chosen).Noting("at " + at.UTC().Format(time.RFC3339))
	b := &pendingBulk{operator: o, act: act, what: "reschedule messages of", most: most, report: report, filter: filter}
	b.has = func(found locked) bool { return found.at == at.UnixMicro() }
	b.one = func(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked) (bool, error) {
		return found.due, o.due(ctx, tx, s, found, at.UnixMicro())
	}
	return b.run(ctx)
}

// BuryAll makes dead letters of the pending messages that a filter selects.
func (o *Operator) BuryAll(
	ctx context.Context, name string, filter dialect.MessageFilter, most int, chosen, reason string, report func(Progress),
) (Progress, error) {
	act := audit.NewAct(audit.ActBury, name).Choosing(chosen).Noting(reason)
	b := &pendingBulk{operator: o, act: act, what: "bury messages of", most: most, headsFirst: true, report: report, filter: filter}
	b.one = func(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked) (bool, error) {
		return o.bury(ctx, tx, s, found, reason)
	}
	return b.run(ctx)
}
