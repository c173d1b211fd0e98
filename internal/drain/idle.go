package drain

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A drainer with nothing to do is idle while the log of its database is read in this process and
// tells each change: see docs/log-tailing.md. Then it executes one statement in [idleInterval], a
// look, which renews its lease and finds out whether there is something to do after all.
//
// It is not idle, and polls, as soon as
//
//   - the log tells of a change,
//   - the log is not read any more, tells less, or its server is silent,
//   - a look finds a message that the log has not told, or anything else that differs from what the
//     drainer knows,
//   - or the first message is due that waits for its time.
//
// Other processes may hold lanes whose leases run out, which no log tells. So a drainer is idle
// only with all lanes, and as the only member.
type idle struct {
	active  bool
	lookAt  time.Time // the next look
	renewed time.Time // the last one
	// doubt is until when the drainer polls, since a look has found something that the log has not
	// told.
	doubt time.Time
}

const (
	// idleInterval is the pause between two looks of an idle drainer. It is two thirds of the
	// default of Lease, so the leases outlast a look that comes late, and the time in which a
	// message is found that the log has missed. A shorter lease makes it shorter.
	idleInterval = 10 * time.Second
	// idleActed is how long an idle drainer looks as often as another one polls after an operator
	// has acted. An action on many messages changes them page by page, and the log tells only of
	// its beginning.
	idleActed = time.Minute
	// idleDoubt is how long a drainer polls after a look has found something that the log has not
	// told.
	idleDoubt = time.Minute
	// idlePulse is how often an idle drainer makes sure that the server of the log is not silent.
	// That takes no statement.
	idlePulse = time.Second
)

// idleInterval returns the pause between two looks.
func (d *Drainer) idleInterval(now time.Time) time.Duration {
	interval := min(idleInterval, d.config.Lease*2/3)
	if acted := d.tailing.feed.Acted(); !acted.IsZero() && now.Sub(acted) < idleActed {
		interval = min(interval, d.pollMost())
	}
	return interval
}

// pollMost is the longest pause between two polls of a drainer that is not idle.
func (d *Drainer) pollMost() time.Duration { return min(d.config.PollMax, DefaultPollMax) }

// beIdle makes a look if one is due and there is nothing to do. The first look takes the place of a
// poll that is due.
func (d *Drainer) beIdle(ctx context.Context) error {
	i, now := &d.idle, time.Now()
	switch {
	case !d.followed(now) || !d.atRest(now):
		d.stir(now)
		return nil
	case i.active && now.Before(i.lookAt):
		return nil
	case !i.active && (!d.pace.due(now) || d.pace.pause < d.pollMost()):
		return nil
	}
	return d.look(ctx, now)
}

// atRest reports whether the drainer has nothing to do but to poll, and whatever it does not know
// is told.
func (d *Drainer) atRest(now time.Time) bool {
	inMemory, _ := d.scheduler.Size()
	busy := inMemory > 0 || d.tailing.feed.Pending()
	unsure := d.stopping || d.watermark.unset() || d.reopen || d.full || d.settle.removal.failed || d.settle.settling.failed || d.trouble.steps > 0 || d.strays != nil || d.control.checkedAt.IsZero() || d.control.paused ||
		d.watermark.pending || len(d.watermark.late.places) > 0 || now.Before(d.idle.doubt)
	return !busy && !unsure && !d.leavesOut() && len(d.excludedTopics()) == 0 && d.members <= 1 && d.holdsAll()
}

// holdsAll reports whether this drainer has all lanes, has read all there is in them, and keeps
// them.
func (d *Drainer) holdsAll() bool {
	for _, l := range d.lanes.held {
		if l.leaving || l.hasMore || l.suspect {
			return false
		}
	}
	return len(d.lanes.held) == dialect.Lanes
}

// stir ends the idle state. The next poll and the next renewal of the leases come as soon as if it
// had not been.
func (d *Drainer) stir(now time.Time) {
	i := &d.idle
	if !i.active {
		return
	}
	i.active = false
	d.pulse.rest(nil)
	d.pace.by(now.Add(d.pollMost()))
	d.pace.renewAt = i.renewed.Add(d.config.Renew)
	d.control.checkedAt = now // the next poll or look at a snapshot brings the version
}

// found is what a look has found.
type found struct {
	renewed, members int
	version          int64
	server           string
	something        bool
	due              int64 // microseconds until the first message is due that waits for its time
}

// look renews the leases, and finds out whether there is something to do.
func (d *Drainer) look(ctx context.Context, sent time.Time) error {
	ahead := d.scheduler.Ahead(sent)
	params, upTo, highest := d.lookParams(sent)
	seen, err := d.lookOnce(ctx, params)
	if d.heard(err); err != nil {
		d.stir(time.Now())
		return fmt.Errorf("look for work of spool %q: %w", d.spool.Name(), err)
	}
	i, now := &d.idle, time.Now()
	if seen.renewed > 0 {
		d.scheduler.ExtendSince(ahead, sent.Add(d.config.Lease))
		d.renewedAhead, i.renewed = ahead, sent
	} else {
		i.renewed = time.Time{} // another process may have the lanes
	}
	calm := seen.renewed > 0 && seen.members <= 1 && seen.version == d.control.version && seen.server == d.past.latest && !seen.something && seen.due > 0
	i.active = true
	if !calm {
		d.stir(now)
		d.pace.at, i.doubt = now, now.Add(idleDoubt)
		d.tailing.feed.Miss()
		d.observeVersion(seen.version)
		return nil
	}
	if upTo > 0 {
		d.sweeping.stepped(upTo, highest, now, now.Sub(sent))
	}
	i.lookAt = sent.Add(d.idleInterval(now))
	d.pace.at, d.pace.renewAt, d.control.checkedAt = i.lookAt, i.lookAt, now
	d.pace.by(now.Add(time.Duration(min(seen.due, math.MaxInt32)) * time.Microsecond))
	d.pulse.rest(d.tailing.feed)
	return nil
}

// lookParams returns the parameters of a look. If a step of the sweep is due, the look makes it,
// too: then upTo is the id up to which it goes, and highest the highest cursor.
func (d *Drainer) lookParams(now time.Time) (params dialect.IdleParams, upTo, highest int64) {
	params = dialect.IdleParams{
		JoinParams: dialect.JoinParams{Member: d.member(), InFlight: d.heartbeat(), TTL: d.config.Lease.Microseconds()},
	}
	lanes := d.lanes.numbers()
	for _, number := range lanes {
		l := d.lanes.held[number]
		params.Ranges = append(params.Ranges, dialect.Range{Lane: number, After: l.cursor, UpTo: math.MaxInt64})
	}
	if d.sweeping.due(now) {
		var step dialect.SweepParams
		step, upTo, highest = d.sweepParams(lanes)
		params.Ranges = append(params.Ranges, step.Ranges...)
	}
	return params, upTo, highest
}

func (d *Drainer) lookOnce(ctx context.Context, params dialect.IdleParams) (seen found, err error) {
	rows, err := d.prepared.Query(ctx, d.db, d.spool.Statements.IdleLook(params))
	if err != nil {
		return seen, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := rows.Scan(&seen.renewed, &seen.members, &seen.version, &seen.server, &seen.something, &seen.due); err != nil {
			return seen, err
		}
	}
	return seen, rows.Err()
}
