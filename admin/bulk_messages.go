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
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Reschedule lets messages that are scheduled, retrying or parked wait until another time, by the
// database's clock. The zero time makes them due now, and so does one that has passed. It takes the
// one with the filter's ID, or those that match, and returns their number; those that wait until
// that time already do not count. A parked message gets all its attempts again. A paused one still
// waits for its resumption. The messages of a key are still handled one after the other, in their
// order. A message whose time has come may be in a handler already, which then ends as usual: call
// [Admin.Pause] first if that matters.
//
// With the zero time, one that has failed, or that the ID names, also ends the pauses of outages:
// processes try again within a second, and not after up to ProbeMax.
//
// With an ID it fails with [ErrNotFound] if the message is not pending, or no longer: it may have
// been handled at the same moment. A ready message is handled as soon as possible: it does not
// count with the zero time, and with another one it is an [ErrRefused].
//
// Otherwise it works in transactions of at most 100 messages and, unless a single message is
// larger, 4 MiB. After each of them it reports the progress. The counted messages stay changed when
// a later transaction fails. Call it again to go on after an error or a crash. When ctx ends, it
// finishes the running transaction, within five seconds, and returns the error of ctx. It ignores
// messages that are written after it began, and skips those that a handler or another operator
// takes meanwhile. A message that it has made due, and that fails again, may be made due once more.
// A filter that asks for ready messages is an error.
func (a *Admin) Reschedule(ctx context.Context, filter Filter, at time.Time, progress ...func(Progress)) (int, error) {
	wrong := checkDue(at)
	if filter.ID == 0 {
		return a.onMessages(filter, "reschedule", "An operator rescheduled messages", errors.Join(filter.waits(), wrong), func(name string, chosen operatorsql.MessageFilter) (Progress, error) {
			return a.operator.RescheduleAll(ctx, name, waiting(chosen), filter.Limit, filter.describe(pendingMessages), at, reporting(progress))
		})
	}
	if wrong != nil {
		return 0, fmt.Errorf("admin: reschedule message %d of %s: %w", filter.ID, filter.Target, invalid(wrong))
	}
	fields := watermill.LogFields{"at": "now"}
	if !at.IsZero() {
		fields["at"] = at.UTC().Format(time.RFC3339)
	}
	return a.onMessage(filter, "An operator rescheduled a message", fields, func(name string, id int64) (int, error) {
		return a.operator.Reschedule(ctx, name, id, at)
	})
}

// Bury makes pending messages dead letters, with the reason, and their keys go on: the one with the
// filter's ID, or those that match. It returns their number. The reason is required. OnDead and
// Poison of a queue's configuration are not called.
//
// A message that is ready, or whose time has come, may be in a handler already, or may be handed to
// one within a second. If that handler works in a transaction of the queue, its writes are rolled
// back. If not, the message may have its effect, or be published, and become a dead letter as well:
// call [Admin.Pause] first if that matters.
//
// With an ID it fails with [ErrNotFound] if the message is not pending, or no longer: a handler, or
// another operator, was faster. Otherwise transactions, progress, limit and errors are those of
// [Admin.Reschedule]. Failed messages are buried first, then ready ones, and scheduled ones last.
// So the dead letters of a key are in the order of its messages, apart from scheduled ones, and
// [Admin.Requeue] brings them back in that order. But as soon as the failed message of a key is
// buried, the ready ones behind it may be handled.
func (a *Admin) Bury(ctx context.Context, filter Filter, reason string, progress ...func(Progress)) (int, error) {
	wrong := checkReason(reason)
	if filter.ID != 0 {
		if wrong != nil {
			return 0, fmt.Errorf("admin: bury message %d of %s: %w", filter.ID, filter.Target, invalid(wrong))
		}
		return a.onMessage(filter, "An operator buried a message", watermill.LogFields{"reason": reason}, func(name string, id int64) (int, error) {
			return 1, a.operator.Bury(ctx, name, id, reason)
		})
	}
	return a.onMessages(filter, "bury", "An operator buried messages", wrong, func(name string, chosen operatorsql.MessageFilter) (Progress, error) {
		return a.operator.BuryAll(ctx, name, chosen, filter.Limit, filter.describe(pendingMessages), reason, reporting(progress))
	})
}

// checkDue refuses a time until which no message can wait.
func checkDue(at time.Time) error {
	if !at.IsZero() && (at.UnixMicro() <= 0 || at.UnixMicro() >= dialect.ParkedFrom) {
		return fmt.Errorf("a message cannot wait until %s: use a time from 1970 on, or the zero time for now", at)
	}
	return nil
}

// waits refuses a filter that asks for ready messages.
func (f Filter) waits() error {
	if f.Status == Ready {
		return fmt.Errorf("status: %w: ready messages are handled as soon as possible: use %s, %s or %s, or leave it out for all of them", ErrRefused, Scheduled, Retrying, Parked)
	}
	return nil
}

// waiting leaves ready messages out.
func waiting(chosen operatorsql.MessageFilter) operatorsql.MessageFilter {
	chosen.States[0] = max(chosen.States[0], dialect.StateScheduled)
	return chosen
}

// onMessage acts on the one message that a filter names.
func (a *Admin) onMessage(filter Filter, logged string, fields watermill.LogFields, act func(name string, id int64) (int, error)) (n int, err error) {
	if err = filter.alone(pendingMessages); err == nil {
		n, err = act(filter.Target.stored(), filter.ID)
	}
	if err != nil {
		return 0, failed(err)
	}
	a.say(logged, filter.Target, watermill.LogFields{"message": filter.ID}.Add(fields))
	return n, nil
}

// onMessages acts on all messages that match a filter.
func (a *Admin) onMessages(
	filter Filter, what, logged string, wrong error, act func(name string, chosen operatorsql.MessageFilter) (Progress, error),
) (int, error) {
	chosen, err := filter.ofMessages()
	if filter.Status == Done {
		err = errors.Join(err, errors.New("status: messages of the history are replayed: use Replay"))
	}
	if err := errors.Join(filter.acting(pendingMessages), err, wrong); err != nil {
		return 0, fmt.Errorf("admin: %s messages of %s: %w", what, filter.Target, invalid(err))
	}
	did, err := act(filter.Target.stored(), chosen)
	if did.Done > 0 {
		a.say(logged, filter.Target, watermill.LogFields{"count": did.Done, "filter": filter.describe(pendingMessages)})
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

	filter   operatorsql.MessageFilter
	progress Progress
}

// run returns the progress also with an error.
func (b *pendingBulk) run(ctx context.Context) (Progress, error) {
	progress, err := b.all(ctx)
	return progress, errors.Join(err, b.operator.audit.End(ctx, b.operator.db, b.act, err))
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
		b.filter.States, b.filter.After = states, operatorsql.Place{}
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
		found, err := b.operator.Messages(ctx, b.act.Target, b.filter)
		if err == nil {
			err = b.page(ctx, found.Messages)
		}
		if err != nil || found.Next == nil {
			return err
		}
		b.filter.After = *found.Next
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
	parked := filter.Parked == operatorsql.ParkedAny || (filter.Parked == operatorsql.ParkedOnly) == found.parked
	if found.ref.CreatedAt != listed.CreatedAt.UnixMicro() || found.ref.State < filter.States[0] || found.ref.State > filter.States[1] ||
		!parked || found.attempts < filter.MinAttempts {
		return false, nil
	}
	if filter.ErrorText == "" {
		return true, nil
	}
	failures, err := readFailures(ctx, tx, b.operator.statements, spool.MessageSubject(found.ref.ID, found.ref.CreatedAt), nil, 1)
	return len(failures) == 1 && strings.Contains(failures[0].Error, filter.ErrorText), err
}

// RescheduleAll makes the waiting messages that a filter selects due at the given time, the zero
// time for now; at most the given number (0: no limit). The filter must select no ready ones.
func (o *operator) RescheduleAll(
	ctx context.Context, name string, filter operatorsql.MessageFilter, most int, chosen string, at time.Time, report func(Progress),
) (Progress, error) {
	b := &pendingBulk{operator: o, act: rescheduling(name, at).Choosing(chosen), what: "reschedule messages of", most: most, report: report, filter: filter}
	b.has = func(found locked) bool { return found.at == micros(at) || found.due && at.IsZero() }
	b.one = func(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked) (notice bool, err error) {
		notice, err = o.reschedule(ctx, tx, s, found, at)
		return notice && (b.progress.Done == 0 || !at.IsZero()), err // the first transaction ends pauses of outages
	}
	return b.run(ctx)
}

// BuryAll makes dead letters of the pending messages that a filter selects.
func (o *operator) BuryAll(
	ctx context.Context, name string, filter operatorsql.MessageFilter, most int, chosen, reason string, report func(Progress),
) (Progress, error) {
	act := audit.NewAct(audit.ActBury, name).Choosing(chosen).Noting(reason)
	b := &pendingBulk{operator: o, act: act, what: "bury messages of", most: most, headsFirst: true, report: report, filter: filter}
	b.one = func(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked) (bool, error) {
		return o.bury(ctx, tx, s, found, reason)
	}
	return b.run(ctx)
}
