package cleanup

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// spoolPurge deletes rows that spools may keep for different times. Each step handles the next
// spool that has such rows, by an index on spool and time, so rows that are kept are not read,
// however many they are.
type spoolPurge struct {
	next  string                                         // statement: the next spool that has rows
	purge func(int64, dialect.PurgeParams) dialect.Query // deletes the oldest rows of one spool
	batch int
	// others, if set, deletes rows that belong to no spool, at the beginning of each round.
	others work
	// keep returns how long a spool keeps its rows, and whether any are to be deleted. Its
	// arguments are the settings stored by operators, and how long the spool's drainers keep done
	// messages.
	keep func(settings spool.Settings, history time.Duration) (time.Duration, bool)

	begun bool          // a round is running
	after int64         // the last spool of this round
	full  bool          // a step of this round deleted as many rows as it may: there are more
	some  int           // rows that this round has deleted
	least time.Duration // shortest time that a spool of this round keeps its rows; 0: none is known
}

// letterPurge returns the task for dead letters. A negative retention keeps the letters of inboxes,
// and of spools without a retention of their own.
func letterPurge(statements *dialect.Statements, retention time.Duration, batch int) *spoolPurge {
	p := &spoolPurge{next: statements.NextOfLetters, purge: statements.PurgeDeadLetters, batch: batch}
	p.keep = func(settings spool.Settings, _ time.Duration) (time.Duration, bool) {
		if settings.Retention != 0 {
			return settings.Retention, settings.Retention > 0
		}
		return retention, retention > 0
	}
	if retention > 0 {
		p.others = func(ctx context.Context, c *Cleaner, ch *task) (int, time.Duration, error) {
			return c.purge(ctx, ch, retention, batch, statements.PurgeOthers)
		}
	}
	return p
}

// historyPurge returns the task for the history. If neither operators nor a drainer have set a
// history for a spool, or operators have turned it off, nothing is kept.
func historyPurge(statements *dialect.Statements, batch int) *spoolPurge {
	p := &spoolPurge{next: statements.NextOfHistory, purge: statements.PurgeHistory, batch: batch}
	p.keep = func(settings spool.Settings, history time.Duration) (time.Duration, bool) {
		if settings.History != 0 {
			return max(settings.History, 0), true
		}
		return history, true
	}
	return p
}

// work performs a step: it deletes rows of the next spool, as many as one statement may delete.
// There is no pause within a round.
func (p *spoolPurge) work(ctx context.Context, c *Cleaner, ch *task) (removed int, pause time.Duration, err error) {
	if !p.begun {
		p.begun, p.after, p.full, p.some, p.least = true, 0, false, 0, 0
		if p.others != nil {
			removed, _, err = p.others(ctx, c, ch)
			p.full, p.some = removed >= p.batch, removed
			return removed, 0, err
		}
	}
	var id sql.NullInt64
	var text string
	var history int64
	if err := c.db.QueryRowContext(ctx, p.next, p.after).Scan(&id, &text, &history); err != nil {
		return 0, 0, err
	}
	if !id.Valid {
		p.begun = false
		switch {
		case p.full:
		case p.some > 0:
			pause = c.config.Interval
		case p.least == 0: // it has found no rows
			pause = ch.interval
		default:
			pause = min(ch.interval, c.restFor(p.least))
		}
		return 0, pause, nil
	}
	p.after = id.Int64
	settings, err := spool.DecodeSettings(text)
	if err != nil { // an operator wanted something other than the default: keep too much rather than too little
		c.logger.Debug(fmt.Sprintf("Postbox deletes nothing of spool %d: %s", p.after, err), watermill.LogFields{"task": ch.name})
		return 0, 0, nil
	}
	keep, limited := p.keep(settings, time.Duration(history)*time.Microsecond)
	if !limited {
		return 0, 0, nil
	}
	if p.least == 0 || keep < p.least {
		p.least = max(keep, 1)
	}
	removed, err = c.delete(ctx, p.purge(p.after, dialect.PurgeParams{Retention: keep.Microseconds(), Limit: p.batch}))
	p.full, p.some = p.full || removed >= p.batch, p.some+removed
	return removed, 0, err
}
