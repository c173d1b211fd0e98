package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// liveThroughDays lets some days pass: an ordinary one, one at whose end the service is stopped, and the next one.
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

// missMidnight stops the service while sales wait for midnight, lets that pass, and starts the service again.
func (a *app) missMidnight(ctx context.Context, running *service) (*service, error) {
	var missed time.Time
	for missed.IsZero() {
		if err := a.sell(ctx, a.sales); err != nil {
			return running, err
		}
		if err := a.waitUntil(ctx, "all sales are stored", a.allStored); err != nil {
			return running, err
		}
		err := running.stop()
		if err == nil {
			missed, err = a.nextReport(ctx)
		}
		if err == nil && missed.IsZero() { // midnight was faster than the stop: the next day is another chance
			running, err = a.startService(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	waiting, err := a.waiting(ctx, queue)
	if err != nil {
		return nil, err
	}
	a.say("%d sales, one of them wrong; the service is stopped, and %d sales wait for their report", a.sales, waiting)
	err = a.waitUntil(ctx, "midnight", func(ctx context.Context) (bool, error) {
		now, err := a.now(ctx)
		return now.After(missed), err
	})
	if err != nil {
		return nil, err
	}
	// The tills do not care. These sales stay in the outbox until the service is there again, so they belong to its next day.
	late := a.sales / 5
	if err := a.sell(ctx, late); err != nil {
		return nil, err
	}
	if a.restarted, err = a.now(ctx); err != nil {
		return nil, err
	}
	a.say("midnight has passed, and nobody made a report; %d more sales, one of them wrong; the service starts again", late)
	return a.startService(ctx)
}

// nextReport returns for which midnight sales wait. Two at least: one of them may be wrong, and then is in no report. It
// returns the zero time where it would be a report without sales.
func (a *app) nextReport(ctx context.Context) (next time.Time, err error) {
	now, err := a.now(ctx)
	if err != nil {
		return next, err
	}
	coming, sales := a.endOfDay(now), 0
	err = a.each(ctx, "SELECT created_at FROM daily_report_messages WHERE topic = '"+queue+"'", func(scan scanner) error {
		var stored int64
		err := scan(&stored)
		if a.endOfDay(time.UnixMicro(stored)).Equal(coming) {
			sales++
		}
		return err
	})
	if sales > 1 {
		next = coming
	}
	return next, err
}

// allStored says whether all sales are in the queue, or were there.
func (a *app) allStored(ctx context.Context) (bool, error) {
	inOutbox, err := a.waiting(ctx, salesTopic)
	return inOutbox == 0 && a.post.arrived(), err
}

// allReported says whether nothing waits for its midnight any more.
func (a *app) allReported(ctx context.Context) (bool, error) {
	if stored, err := a.allStored(ctx); err != nil || !stored {
		return false, err
	}
	inQueue, err := a.waiting(ctx, queue)
	return inQueue == 0, err
}

// waitUntil asks again and again.
func (a *app) waitUntil(ctx context.Context, what string, condition func(ctx context.Context) (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
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
