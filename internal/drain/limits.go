package drain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Limits hold for all processes together, by rows of the database: see package dialect, limits.go.
// A step of the loop takes what the gates of the scheduler ask for, never within a read or the
// transaction of a handler.
//
//   - A rate grants a process messages for a quarter of a second, and takes back nothing: what is
//     not begun by then is lost, also after a crash.
//   - A slot is held as a lane is, by a member, so that a crash frees it. One that names this
//     process, and that the scheduler does not hold, is given back: after a lost lease, a change of
//     limits, or an error.

type limiter struct {
	*core
	lease    *lease // without it this process takes nothing
	reported bool   // how many messages wait for limits
}

// takeFromLimits takes from the database what the limits ask for, and gives back slots that this
// process does not use.
func (lim *limiter) takeFromLimits(ctx context.Context) error {
	asks, at := lim.scheduler.Asks(lim.lease.members)
	asked := time.Now()
	if at.IsZero() || at.After(asked) || !lim.lease.joined {
		return nil
	}
	slots, now, err := lim.slotsFor(ctx, asks)
	for name := range slots {
		if !slices.ContainsFunc(asks, func(a schedule.Ask) bool { return a.Topic == name }) {
			asks = append(asks, schedule.Ask{Topic: name}) // a limit that is gone
		}
	}
	for i := range asks {
		if err == nil {
			err = lim.takeFrom(ctx, &asks[i], slots[asks[i].Topic], now)
		}
	}
	if err != nil {
		lim.scheduler.DoubtSlots()
		return fmt.Errorf("take from the limits of spool %q: %w", lim.spool.Name(), err)
	}
	lim.scheduler.Grant(asks, asked)
	return nil
}

// slotsFor reads the limits. Slots that these ask for, and that have no row yet, are added first.
func (lim *limiter) slotsFor(ctx context.Context, asks []schedule.Ask) (slots map[string][]dialect.Slot, now int64, err error) {
	slots, now, err = lim.readLimits(ctx)
	added := false
	for _, a := range asks {
		if absent := absentSlots(a, slots[a.Topic]); err == nil && len(absent) > 0 {
			added = true
			_, err = lim.changeLimits(ctx, lim.spool.Statements.AddSlots(dialect.Limit{Spool: lim.id.Load(), Name: a.Topic}, absent))
		}
	}
	if err == nil && added {
		slots, now, err = lim.readLimits(ctx)
	}
	return slots, now, err
}

// readLimits returns the time, and the slots of each limit by number, without gaps.
func (lim *limiter) readLimits(ctx context.Context) (slots map[string][]dialect.Slot, now int64, err error) {
	slots = map[string][]dialect.Slot{}
	err = lim.prepared.Each(ctx, lim.db, lim.spool.Statements.Limits(lim.member()), func(scan spool.Scan) error {
		var name string
		var slot dialect.Slot
		err := scan(&name, &slot.Number, &slot.Token, &now, &slot.State)
		slots[name] = append(slots[name], slot)
		return err
	})
	return slots, now, err
}

// absentSlots returns the slots that a limit is asked for, and that have no row yet.
func absentSlots(a schedule.Ask, slots []dialect.Slot) (absent []int64) {
	if a.Most == 0 && a.Slots == 0 {
		return nil
	}
	free := 0
	for _, slot := range slots {
		if slot.State == "free" && slot.Number > 0 {
			free++
		}
	}
	if len(slots) == 0 {
		absent = append(absent, 0) // the rate
	}
	for n := max(len(slots), 1); n <= a.Limit.MaxConcurrent && free < a.Slots; n++ {
		absent, free = append(absent, int64(n)), free+1
	}
	return absent
}

// takeFrom asks one limit, whose slots were read at this time of the database.
func (lim *limiter) takeFrom(ctx context.Context, a *schedule.Ask, slots []dialect.Slot, now int64) error {
	if len(slots) == 0 { // it asks for nothing, or another process is adding them
		return nil
	}
	limit := dialect.Limit{Spool: lim.id.Load(), Name: a.Topic}
	var free, back []dialect.Slot
	for _, slot := range slots[1:] { // behind the rate
		switch {
		case slot.State == "mine":
			a.Stored++
			if !slices.Contains(a.Held, slot.Number) {
				back = append(back, slot)
			}
		case slot.State == "free" && len(free) < a.Slots && slot.Number <= int64(a.Limit.MaxConcurrent):
			free = append(free, slot)
		}
	}
	left, err := lim.changeSlots(ctx, limit, nil, newToken(), back)
	if err != nil {
		return err
	}
	got, err := lim.changeSlots(ctx, limit, lim.config.Holder, newToken(), free)
	if a.Stored += got - left; err != nil {
		return err
	}
	if got == len(free) { // else it gives back what it has got
		for _, slot := range free {
			a.Got = append(a.Got, slot.Number)
		}
	}
	if a.Most == 0 {
		return nil
	}
	tokens, until, wait := a.Granted(slots[0].Token, now)
	a.Tokens, a.Wait = tokens, max(wait, schedule.AskAgain)
	if tokens > 0 {
		n, err := lim.changeSlots(ctx, limit, nil, until, slots[:1])
		if a.Tokens *= n; err != nil || n == 0 { // another process was faster
			a.Wait = time.Duration(rand.Int64N(int64(schedule.AskAgain))) //nolint:gosec // it need not be secret
			return err
		}
	}
	return nil
}

// newToken returns the token of one statement. Another one has its own: what a process has read of
// one slot must not fit another slot that was changed later.
func newToken() int64 {
	return rand.Int64() //nolint:gosec // it need not be secret
}

// changeSlots changes those of these slots which no other process has changed, and returns their
// number.
func (lim *limiter) changeSlots(ctx context.Context, l dialect.Limit, holder any, token int64, slots []dialect.Slot) (int, error) {
	if len(slots) == 0 {
		return 0, nil
	}
	return lim.changeLimits(ctx, lim.spool.Statements.ChangeSlots(l, holder, token, slots))
}

// changeLimits returns how many rows a statement has changed. Where it meets another process, it
// has changed none.
func (lim *limiter) changeLimits(ctx context.Context, query dialect.Query) (int, error) {
	n, err := spool.Affected(lim.prepared.Exec(ctx, lim.db, query))
	if err != nil && lim.spool.Statements.Kind.Classify(err) == dialect.Conflict {
		return 0, nil
	}
	return int(n), err
}

// Repeat waits until a handler may be given messages once more that it has had in the same call,
// and counts them. If it reports false, they have to be postponed.
func (d *Drainer) Repeat(ctx context.Context, messages []*spool.Message) bool {
	return d.scheduler.Repeat(ctx, messages)
}

// reportLimits reports how many messages wait for limits.
func (lim *limiter) reportLimits() {
	if limited := !spool.NoLimits(lim.config.Limits); limited || lim.reported {
		now := lim.scheduler.HeldUp()
		lim.configured.Meter.HeldUp(now.Total, now.Topics)
		lim.reported = limited
	}
}
