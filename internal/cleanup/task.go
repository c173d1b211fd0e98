package cleanup

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const (
	// paceShare keeps the walk through the claims below a twentieth of the time. At 2 ms for a page
	// of 1000, ten million claims take about seven minutes.
	paceShare = 20
	// walksPerRetention is the number of walks through the claims within the retention of a claim,
	// and of searches for other rows that are too old. So a row is kept at most a fiftieth longer
	// than necessary.
	walksPerRetention = 50
)

// task is one kind of cleanup, with its state in this process.
type task struct {
	name string
	work work
	// interval is the pause between two renewals of the lease, between two tries to get the task,
	// and before the next step when a step has found nothing.
	interval time.Duration

	added   bool      // the row in the database exists
	taken   bool      // the row may name this process
	held    bool      // the row names this process
	failing bool      // the last turn failed
	cursor  []byte    // where the work continues
	holdAt  time.Time // when to renew the lease, or to try for it again
	stepAt  time.Time // when the work continues
}

// work performs one bounded step of a task. It returns how many rows were deleted, and the pause
// before the next step.
type work func(ctx context.Context, c *Cleaner, ch *task) (removed int, pause time.Duration, err error)

// next returns when the task needs its next turn.
func (ch *task) next() time.Time {
	if ch.held && ch.stepAt.Before(ch.holdAt) {
		return ch.stepAt
	}
	return ch.holdAt
}

// hold takes the task, or renews its lease, and continues where the last process stopped.
func (c *Cleaner) hold(ctx context.Context, ch *task) error {
	if !ch.added {
		if _, err := c.db.ExecContext(ctx, c.statements.AddChore, ch.name); err != nil {
			return ch.failed("add", err)
		}
		ch.added = true
	}
	if err := c.checkClock(ctx); err != nil {
		return err
	}
	tried := time.Now()
	ch.taken = true
	take := c.statements.TakeChore(c.chore(ch), c.lease(ch).Microseconds())
	changed, err := spool.Affected(c.db.ExecContext(ctx, take.Text, take.Args...))
	if err != nil {
		return ch.failed("take", err)
	}
	ch.taken = changed > 0
	if ch.taken && !ch.held {
		if err := c.db.QueryRowContext(ctx, c.statements.ChoreCursor, ch.name).Scan(&ch.cursor); err != nil {
			return ch.failed("find the progress of", err)
		}
		ch.stepAt = time.Time{}
	}
	ch.held, ch.holdAt = ch.taken, tried.Add(ch.interval)
	return nil
}

// checkClock returns an error if the clock of the database has gone ahead.
func (c *Cleaner) checkClock(ctx context.Context) error {
	ahead, err := c.statements.Ahead(ctx, c.db)
	if err == nil && ahead > 0 {
		err = fmt.Errorf("the clock of the database is ahead of that of this process by %s, so it is not known what is too old: set the clocks", ahead.Round(time.Second))
	}
	return err
}

// lease is how long a silent process keeps a task. A renewal may come late by half of its interval.
func (c *Cleaner) lease(ch *task) time.Duration { return max(c.config.Lease, ch.interval*3/2) }

// step performs the next step of the task.
func (c *Cleaner) step(ctx context.Context, ch *task) error {
	removed, pause, err := ch.work(ctx, c, ch)
	if err != nil {
		return ch.failed("do", err)
	}
	ch.stepAt = time.Now().Add(pause)
	if removed > 0 {
		c.logger.Debug("Postbox deleted rows whose retention has ended", watermill.LogFields{"task": ch.name, "rows": removed})
	}
	return nil
}

// Task is a task that a cleaner is given: see [Purge] and [Repeat].
type Task struct {
	name      string
	retention time.Duration // of the rows that it deletes; 0 if it deletes none
	work      work
}

// Purge returns a task that deletes rows after the retention, by statements that find the oldest
// rows by an index.
func Purge(name string, retention time.Duration, statements ...func(dialect.PurgeParams) dialect.Query) Task {
	return Task{name, retention, func(ctx context.Context, c *Cleaner, ch *task) (removed int, pause time.Duration, err error) {
		return c.purge(ctx, ch, retention, c.config.Batch, statements...)
	}}
}

// purge performs a step of such a task.
func (c *Cleaner) purge(ctx context.Context, ch *task, retention time.Duration, batch int,
	statements ...func(dialect.PurgeParams) dialect.Query,
) (removed int, pause time.Duration, err error) {
	most := 0
	for _, statement := range statements {
		n, err := c.delete(ctx, statement(dialect.PurgeParams{Retention: retention.Microseconds(), Limit: batch}))
		if err != nil {
			return removed, 0, err
		}
		removed, most = removed+n, max(most, n)
	}
	return removed, c.pause(ch, most, batch), nil
}

// Repeat returns a task that takes one bounded step after the other, with the pause that the step
// returns.
func Repeat(name string, step func(ctx context.Context) (pause time.Duration, err error)) Task {
	return Task{name, 0, func(ctx context.Context, _ *Cleaner, _ *task) (removed int, pause time.Duration, err error) {
		pause, err = step(ctx)
		return 0, pause, err
	}}
}

// pause returns how long a task pauses after a step, or a round of steps, that has deleted so many
// rows: not at all if there may be more.
func (c *Cleaner) pause(ch *task, removed, batch int) time.Duration {
	switch {
	case removed >= batch:
		return 0
	case removed > 0:
		return c.config.Interval
	default:
		return ch.interval
	}
}

// walkClaims returns the work for claims. They have no index on their time, which would cost time
// for each message. So their primary key is walked page by page, again and again.
func walkClaims(retention time.Duration, batch int) work {
	keep := retention.Microseconds()
	return func(ctx context.Context, c *Cleaner, ch *task) (removed int, pause time.Duration, err error) {
		started := time.Now()
		after := append([]byte{}, ch.cursor...) // not nil: no key compares as greater than NULL
		var last []byte
		var keys, expired int
		page := c.statements.ClaimsPage(after, batch, keep)
		err = c.db.QueryRowContext(ctx, page.Text, page.Args...).Scan(&last, &keys, &expired)
		if err == nil && expired > 0 {
			removed, err = c.delete(ctx, c.statements.PurgeClaims(after, last, keep))
		}
		if err != nil {
			return 0, 0, err
		}
		if keys < batch { // the end of the table
			pause, last = max(ch.interval, retention/walksPerRetention), nil
		}
		if err := c.save(ctx, ch, last); err != nil {
			return removed, 0, err
		}
		switch {
		case keys < batch:
			return removed, pause, nil
		case removed >= batch:
			return removed, 0, nil
		default:
			return removed, min((paceShare-1)*time.Since(started), c.config.Interval), nil
		}
	}
}

// save keeps the cursor for the next process, unless another process has taken the task.
func (c *Cleaner) save(ctx context.Context, ch *task, cursor []byte) error {
	if bytes.Equal(ch.cursor, cursor) {
		return nil
	}
	if err := spool.Run(ctx, c.db, c.statements.SaveChore(c.chore(ch), cursor)); err != nil {
		return err
	}
	ch.cursor = cursor
	return nil
}
