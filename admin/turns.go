package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// RunNow makes a message due that is scheduled, retrying or parked. A parked message gets all its attempts again. RunNow does not change a ready
// message, since that is handled as soon as possible, nor a message that an operator has paused.
//
// It fails with [ErrNotFound] if the message is not pending, or no longer: it may have been handled at the same moment.
func (a *Admin) RunNow(ctx context.Context, target Target, id int64) error {
	if err := a.operator.RunNow(ctx, target.spool, id); err != nil {
		return failed(err)
	}
	a.say("An operator made a message due now", target, watermill.LogFields{"message": id})
	return nil
}

// Reschedule lets a message that is scheduled, retrying or parked wait until another time, by the database's clock; a
// time in the past means now. A parked message gets all its attempts again. Reschedule fails with [ErrReady] if the message is ready,
// and with [ErrNotFound] if it is not pending, or no longer.
//
// A message whose time has come may be in a handler already, which then ends as usual: call [Admin.Pause] first if that matters.
func (a *Admin) Reschedule(ctx context.Context, target Target, id int64, at time.Time) error {
	if err := checkDue(at); err != nil {
		return fmt.Errorf("admin: reschedule message %d of %s: %w", id, target, invalid(err))
	}
	if err := a.operator.Reschedule(ctx, target.spool, id, at); err != nil {
		return failed(err)
	}
	a.say("An operator rescheduled a message", target, watermill.LogFields{"message": id, "at": at.UTC().Format(time.RFC3339)})
	return nil
}

// Bury makes a pending message a dead letter, with the reason, and its key goes on. The reason is required. Bury fails with
// [ErrNotFound] if the message is not pending, or no longer: a handler, or another operator, was faster. OnDead
// and PoisonOutbox of a queue's configuration are not called.
//
// A message that is ready, or whose time has come, may be in a handler already, or may be handed to one within a second. If that handler works in
// a transaction of the queue, its writes are rolled back. If not, the message may have its effect, or be published, and
// become a dead letter as well: call [Admin.Pause] first if that matters.
func (a *Admin) Bury(ctx context.Context, target Target, id int64, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return fmt.Errorf("admin: bury message %d of %s: %w", id, target, invalid(errNoReason))
	}
	if err := a.operator.Bury(ctx, target.spool, id, reason); err != nil {
		return failed(err)
	}
	a.say("An operator buried a message", target, watermill.LogFields{"message": id, "reason": reason})
	return nil
}

// checkDue refuses a time until which no message can wait.
func checkDue(at time.Time) error {
	if at.IsZero() || at.UnixMicro() <= 0 || at.UnixMicro() >= dialect.ParkedFrom {
		return fmt.Errorf("a message cannot wait until %s: use a time from 1970 on, or RunNow", at)
	}
	return nil
}

var errNoReason = errors.New("the reason is empty: give one")
