package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/operate"
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
		return 0, fmt.Errorf("admin: run messages of %s: %w", filter.Target, operate.Invalid(err))
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
		return 0, fmt.Errorf("admin: reschedule messages of %s: %w", filter.Target, operate.Invalid(err))
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
		return 0, fmt.Errorf("admin: bury messages of %s: %w", filter.Target, operate.Invalid(err))
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
func (a *Admin) didMessages(logged string, filter MessageFilter, did operate.Progress, err error) (int, error) {
	if did.Done > 0 {
		a.say(logged, filter.Target, watermill.LogFields{"count": did.Done, "filter": filter.String()})
	}
	if err != nil {
		return did.Done, failed(err)
	}
	return did.Done, nil
}
