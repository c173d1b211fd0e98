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

// spoolPurge is the work on rows that spools may keep for different times. It goes round the spools that have some, one
// a step, by an index on spool and time: what is kept is not looked at, however much it is.
type spoolPurge struct {
	next  string                                         // statement: the next spool that has rows
	purge func(int64, dialect.PurgeParams) dialect.Query // deletes the oldest rows of one
	batch int
	// others, if set, is the work on rows of no spool, at the beginning of each round.
	others work
	// keep is how long a spool keeps them, and whether anything is to be deleted at all. It is given what operators have
	// stored, and how long the spool's drainers keep what is done.
	keep func(settings spool.Settings, history time.Duration) (time.Duration, bool)

	begun bool  // a round is under way
	after int64 // the last spool of it
	full  bool  // a step of it removed as much as one may: there is more
}

// letterPurge is the work on dead letters. A retention that is negative keeps those of spools with no retention of their
// own, and those of inboxes.
func letterPurge(statements *dialect.Statements, retention time.Duration, batch int) *spoolPurge {
	p := &spoolPurge{next: statements.NextOfLetters, purge: statements.PurgeDeadLetters, batch: batch}
	p.keep = func(settings spool.Settings, _ time.Duration) (time.Duration, bool) {
		if settings.Retention != 0 {
			return settings.Retention, settings.Retention > 0
		}
		return retention, retention > 0
	}
	if retention > 0 {
		p.others = purge(statements.PurgeOthers, retention, batch)
	}
	return p
}

// historyPurge is the work on the history. Where neither operators nor a drainer say that a spool has one, and where they
// have turned it off, nothing is kept.
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

// work does a step: the rows of the next spool, as many as one statement may delete. There is no pause within a round.
func (p *spoolPurge) work(ctx context.Context, c *Cleaner, ch *task) (removed int, pause time.Duration, err error) {
	if !p.begun {
		p.begun, p.after, p.full = true, 0, false
		if p.others != nil {
			removed, _, err = p.others(ctx, c, ch)
			p.full = removed >= p.batch
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
		if !p.full {
			pause = c.config.Interval
		}
		return 0, pause, nil
	}
	p.after = id.Int64
	settings, err := spool.DecodeSettings(text)
	if err != nil { // an operator wanted something else than the default: better keep too much
		c.logger.Debug(fmt.Sprintf("Postbox deletes nothing of spool %d: %s", p.after, err), watermill.LogFields{"task": ch.name})
		return 0, 0, nil
	}
	keep, limited := p.keep(settings, time.Duration(history)*time.Microsecond)
	if !limited {
		return 0, 0, nil
	}
	removed, err = c.delete(ctx, p.purge(p.after, dialect.PurgeParams{Retention: keep.Microseconds(), Limit: p.batch}))
	p.full = p.full || removed >= p.batch
	return removed, 0, err
}
