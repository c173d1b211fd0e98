package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// RunAllNow makes the messages due that match the filter and are scheduled, retrying or parked, as [Admin.RunNow] does, and returns their number. It
// leaves ready messages as they are, and returns an error if the filter asks for them. The messages of a key are still handled one after the
// other, in their order.
//
// It works in transactions of at most 100 messages and, unless a single message is larger, 4 MiB. After each of them it reports the progress,
// if progress is not nil. The counted messages stay changed when a later transaction fails. Call it again to go on after an error or a crash.
// When ctx ends, it finishes the running transaction, within five seconds, and returns the error of ctx.
//
// It ignores messages that are written after it began, and skips those that a handler or another operator takes meanwhile, and those that are due
// already. A message that it has made due, and that fails again, may be made due once more.
func (a *Admin) RunAllNow(ctx context.Context, filter MessageFilter, progress func(Progress)) (int, error) {
	chosen, err := filter.waiting()
	if err != nil {
		return 0, fmt.Errorf("admin: run messages of %s: %w", filter.Target, invalid(err))
	}
	did, err := a.operator.RunAllNow(ctx, filter.Target.spool, chosen, filter.Limit, filter.String(), reporting(progress))
	return a.didMessages("An operator made messages due now", filter, did, err)
}

// RescheduleAll lets the messages that match the filter and are scheduled, retrying or parked wait until another time, as [Admin.Reschedule]
// does, and returns their number. It leaves ready messages as they are, and returns an error if the filter asks for them. Messages that wait until that
// time already do not count. Transactions, progress, limit and errors are those of [Admin.RunAllNow].
func (a *Admin) RescheduleAll(ctx context.Context, filter MessageFilter, at time.Time, progress func(Progress)) (int, error) {
	chosen, err := filter.waiting()
	if err = errors.Join(err, checkDue(at)); err != nil {
		return 0, fmt.Errorf("admin: reschedule messages of %s: %w", filter.Target, invalid(err))
	}
	did, err := a.operator.RescheduleAll(ctx, filter.Target.spool, chosen, filter.Limit, filter.String(), at, reporting(progress))
	return a.didMessages("An operator rescheduled messages", filter, did, err)
}

// BuryAll makes the pending messages that match the filter dead letters, as [Admin.Bury] does, and returns their number. Transactions, progress, limit and
// errors are those of [Admin.RunAllNow].
//
// Failed messages are buried first, then ready ones, and scheduled ones last. So the dead letters of a key are in the order of its messages, apart from
// scheduled ones, and [Admin.RequeueAll] brings them back in that order. But as soon as the failed message of a key is buried, the ready ones behind it may
// be handled: call [Admin.Pause] or [Admin.PauseKey] first if that matters.
func (a *Admin) BuryAll(ctx context.Context, filter MessageFilter, reason string, progress func(Progress)) (int, error) {
	chosen, err := filter.bulk()
	if strings.TrimSpace(reason) == "" {
		err = errors.Join(err, errNoReason)
	}
	if err != nil {
		return 0, fmt.Errorf("admin: bury messages of %s: %w", filter.Target, invalid(err))
	}
	did, err := a.operator.BuryAll(ctx, filter.Target.spool, chosen, filter.Limit, filter.String(), reason, reporting(progress))
	return a.didMessages("An operator buried messages", filter, did, err)
}

// bulk is chosen for an action, whose limit has no maximum.
func (f MessageFilter) bulk() (dialect.MessageFilter, error) {
	chosen, err := f.chosen()
	if f.After != "" {
		err = errors.Join(err, errors.New("after: it is for lists: leave it out, and call again to go on"))
	}
	if f.Limit < 0 {
		err = errors.Join(err, fmt.Errorf("limit: %d is negative", f.Limit))
	}
	return chosen, err
}

// waiting is bulk without ready messages.
func (f MessageFilter) waiting() (dialect.MessageFilter, error) {
	chosen, err := f.bulk()
	if f.Status == Ready {
		err = errors.Join(err, fmt.Errorf("status: %w: use %s, %s or %s, or leave it out for all of them", ErrReady, Scheduled, Retrying, Parked))
	}
	chosen.States[0] = max(chosen.States[0], dialect.StateScheduled)
	return chosen, err
}

// String describes the filter for people, as the audit log shows it. It names each field that is set, apart from the target.
func (f MessageFilter) String() string {
	var parts []string
	for _, field := range []struct{ name, value string }{
		{"status", string(f.Status)}, {"topic", f.Topic}, {"key", f.Key}, {"message id", f.MessageID}, {"error with", f.ErrorText},
	} {
		if field.value != "" {
			parts = append(parts, fmt.Sprintf("%s %.300q", field.name, field.value))
		}
	}
	for _, field := range []struct {
		name  string
		value int
	}{{"attempts from", f.MinAttempts}, {"limit", f.Limit}} {
		if field.value != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", field.name, field.value))
		}
	}
	for _, field := range []struct {
		name  string
		value time.Time
	}{{"written from", f.CreatedAfter}, {"written before", f.CreatedBefore}} {
		if !field.value.IsZero() {
			parts = append(parts, field.name+" "+field.value.UTC().Format(time.RFC3339Nano))
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

// didMessages logs what an action on many messages has done.
func (a *Admin) didMessages(logged string, filter MessageFilter, did Progress, err error) (int, error) {
	if did.Done > 0 {
		a.say(logged, filter.Target, watermill.LogFields{"count": did.Done, "filter": filter.String()})
	}
	if err != nil {
		return did.Done, failed(err)
	}
	return did.Done, nil
}

// pendingBulk is a running action on the pending messages that a filter selects, page by page in
// the order of their list. Messages only move forward in that order, so none is missed that is
// pending all the while.
//
// Each transaction locks its messages in that order, so operators who run the same action at once
// wait for each other, and each message is changed once.
type pendingBulk struct {
	operator *operator
	act      *audit.Act
	what     string
	most     int // 0: no limit
	// headsFirst: see passes.
	headsFirst bool
	// has reports whether a locked message is already as the action would make it, so that it does
	// not count: a message that the action has changed comes again if it was moved to another lane
	// meanwhile. nil is never.
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

// passes returns the states in the order in which an action takes them. The failed message of a key
// is older than the ready ones that wait for it, so headsFirst keeps the order of a key. Messages
// that fail meanwhile are in the last pass.
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

func (b *pendingBulk) page(ctx context.Context, page []*storedMessage) error {
	return inParts(ctx, page, func(m *storedMessage) int { return m.Size }, b.left, func(messages []*storedMessage) error {
		if err := b.part(ctx, messages); err != nil {
			return err
		}
		b.report(b.progress)
		return nil
	})
}

// part changes messages in one transaction, with the row of the action.
func (b *pendingBulk) part(ctx context.Context, messages []*storedMessage) error {
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

// stillMatches reports whether a message that was listed is the same, and still matches the filter
// now that it is locked: it may have failed once more since. Its topic, key, id and time of
// creation never change.
func (b *pendingBulk) stillMatches(ctx context.Context, tx *sql.Tx, listed *storedMessage, found locked) (bool, error) {
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

// RunAllNow makes the waiting messages due that a filter selects, at most the given number (0: no
// limit). The filter must select no ready ones.
func (o *operator) RunAllNow(ctx context.Context, name string, filter dialect.MessageFilter, most int, chosen string, report func(Progress)) (Progress, error) {
	b := &pendingBulk{operator: o, act: audit.NewAct(audit.ActRunNow, name).Choosing(chosen), what: "run messages of", most: most, report: report, filter: filter}
	b.has = func(found locked) bool { return found.due }
	b.one = func(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked) (bool, error) {
		return false, o.due(ctx, tx, s, found, 0)
	}
	return b.run(ctx)
}

// RescheduleAll makes the waiting messages that a filter selects due at the given time. The filter
// must select no ready ones.
func (o *operator) RescheduleAll(
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
func (o *operator) BuryAll(
	ctx context.Context, name string, filter dialect.MessageFilter, most int, chosen, reason string, report func(Progress),
) (Progress, error) {
	act := audit.NewAct(audit.ActBury, name).Choosing(chosen).Noting(reason)
	b := &pendingBulk{operator: o, act: act, what: "bury messages of", most: most, headsFirst: true, report: report, filter: filter}
	b.one = func(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked) (bool, error) {
		return o.bury(ctx, tx, s, found, reason)
	}
	return b.run(ctx)
}
