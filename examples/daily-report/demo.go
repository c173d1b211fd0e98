package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// liveThroughDays lets some days pass: an ordinary one, one at whose end the service is stopped,
// and the next one.
func (a *app) liveThroughDays(ctx context.Context) error {
	running, err := a.startService(ctx)
	if err != nil {
		return err
	}
	err = a.ordinaryDay(ctx)
	if err == nil {
		running, err = a.missMidnight(ctx, running)
	}
	if err == nil {
		err = a.waitUntil(ctx, "all sales are reported", a.allReported)
	}
	if running != nil {
		err = errors.Join(err, running.stop())
	}
	return err
}

func (a *app) ordinaryDay(ctx context.Context) error {
	if err := a.sell(ctx, a.sales); err != nil {
		return err
	}
	a.say("%d sales, one of them wrong; waiting for midnight", a.sales)
	return a.waitUntil(ctx, "all sales are reported", a.allReported)
}

// missMidnight stops the service while sales wait for midnight, lets that pass, and starts the
// service again. Where the machine is too slow for days that are so short, the next day is another
// chance, with fewer sales.
func (a *app) missMidnight(ctx context.Context, running *service) (*service, error) {
	const chances = 5
	const fewest = 3
	sales := a.sales
	for range chances {
		if err := a.sell(ctx, sales); err != nil {
			return running, err
		}
		if err := a.waitUntil(ctx, "all sales are stored", a.allStored); err != nil {
			return running, err
		}
		if err := running.stop(); err != nil {
			return nil, err
		}
		missed, err := a.nightWithoutService(ctx, sales)
		if err == nil {
			running, err = a.startService(ctx)
		}
		if err != nil {
			return nil, err
		}
		if made, err := a.makesUpFor(ctx, missed); err != nil || made {
			return running, err
		}
		sales = max(fewest, sales/2)
	}
	return running, nil // the check at the end will say that no report was made up for
}

// nightWithoutService returns the midnight that it has let pass, or the zero time where no sales
// wait for one.
func (a *app) nightWithoutService(ctx context.Context, sales int) (missed time.Time, err error) {
	missed, err = a.nextReport(ctx)
	if err != nil || missed.IsZero() {
		return missed, err
	}
	// The tills do not care. What they sell now stays in the outbox, and is stored after midnight.
	late := max(1, sales/5)
	if err := a.sell(ctx, late); err != nil {
		return missed, err
	}
	a.say("%d sales, one of them wrong; the service is stopped; %d more sales, one of them wrong", sales, late)
	err = a.waitUntil(ctx, "midnight", func(ctx context.Context) (bool, error) {
		now, err := a.now(ctx)
		a.restarted = now
		return now.After(missed), err
	})
	a.say("midnight has passed, and nobody made a report; the service starts again")
	return missed, err
}

// makesUpFor waits for a missed report, and says whether it is there before the next midnight.
func (a *app) makesUpFor(ctx context.Context, missed time.Time) (made bool, err error) {
	if missed.IsZero() {
		return false, nil
	}
	err = a.waitUntil(ctx, "a report is made", func(ctx context.Context) (bool, error) {
		now, err := a.now(ctx)
		if err != nil || now.After(a.endOfDay(missed)) {
			return true, err
		}
		err = a.DB.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM daily_report_lines WHERE midnight = $1", missed.UnixMicro()).Scan(&made)
		return made, err
	})
	return made, err
}

// nextReport returns for which midnight sales wait. Two at least: one of them may be wrong, and
// then is in no report. It returns the zero time where it would be a report without sales.
func (a *app) nextReport(ctx context.Context) (next time.Time, err error) {
	now, err := a.now(ctx)
	if err != nil {
		return next, err
	}
	coming, sales := a.endOfDay(now), 0
	waiting, _, err := a.operator.Messages(ctx, admin.Filter{Target: admin.Queue(queueName)})
	for _, msg := range waiting {
		if a.endOfDay(msg.CreatedAt).Equal(coming) {
			sales++
		}
	}
	if sales > 1 {
		next = coming
	}
	return next, err
}

// allStored says whether all sales are in the queue, or were there.
func (a *app) allStored(ctx context.Context) (bool, error) {
	outbox, err := a.operator.Account(ctx, admin.Outbox("outbox"))
	return outbox.Pending == 0 && a.post.arrived(), err
}

// allReported says whether nothing waits for its midnight any more.
func (a *app) allReported(ctx context.Context) (bool, error) {
	if stored, err := a.allStored(ctx); err != nil || !stored {
		return false, err
	}
	inQueue, err := a.operator.Account(ctx, admin.Queue(queueName))
	return inQueue.Pending == 0, err
}

// waitUntil asks again and again.
func (a *app) waitUntil(ctx context.Context, what string, condition func(ctx context.Context) (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if met, err := condition(ctx); err != nil || met {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

func (a *app) say(format string, args ...any) { fmt.Fprintf(a.out, format+"\n", args...) }
