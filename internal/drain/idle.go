package drain

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
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
type idler struct {
	*core
	reader  *reader
	lease   *lease
	settle  *settler
	tailing *tailing
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
func (i *idler) idleInterval(now time.Time) time.Duration {
	interval := min(idleInterval, i.config.Lease*2/3)
	if acted := i.tailing.feed.Acted(); !acted.IsZero() && now.Sub(acted) < idleActed {
		interval = min(interval, i.pollMost())
	}
	return interval
}

// pollMost is the longest pause between two polls of a drainer that is not idle.
func (c *core) pollMost() time.Duration { return min(c.config.PollMax, DefaultPollMax) }

// beIdle makes a look if one is due and there is nothing to do. The first look takes the place of a
// poll that is due.
func (i *idler) beIdle(ctx context.Context) error {
	now := time.Now()
	switch {
	case !i.tailing.followed(now) || !i.mayBeIdle(now):
		i.stir(now)
		return nil
	case i.active && now.Before(i.lookAt):
		return nil
	case !i.active && (!i.pace.due(now) || i.pace.pause < i.pollMost()):
		return nil
	}
	return i.look(ctx, now)
}

// mayBeIdle reports whether the drainer has nothing to do but to poll, and is told whatever it does
// not know.
func (i *idler) mayBeIdle(now time.Time) bool {
	inMemory, _ := i.scheduler.Size()
	busy := inMemory > 0 || i.tailing.feed.Pending()
	unsure := i.lease.stopping || i.reader.watermark.unset() || i.past.reopen || i.reader.full || i.settle.removal.failed || i.settle.part.failed || i.trouble.steps > 0 || i.control.checkedAt.IsZero() || i.control.paused ||
		i.reader.watermark.pending || len(i.reader.watermark.late.places) > 0 || now.Before(i.doubt)
	return !busy && !unsure && !i.reader.leavesOut() && len(i.reader.excludedTopics()) == 0 && i.lease.members <= 1 && i.holdsAll()
}

// holdsAll reports whether this drainer has all lanes, has read all there is in them, and keeps
// them.
func (i *idler) holdsAll() bool {
	for _, l := range i.lanes.held {
		if l.leaving || l.hasMore || l.suspect && !l.blocked {
			return false
		}
	}
	return len(i.lanes.held) == dialect.Lanes
}

// stir ends the idle state. The next poll and the next renewal of the leases come as soon as if it
// had not been.
func (i *idler) stir(now time.Time) {
	if !i.active {
		return
	}
	i.active = false
	i.pulse.setFeed(nil)
	i.pace.by(now.Add(i.pollMost()))
	i.pace.renewAt = i.renewed.Add(i.config.Renew)
	i.control.checkedAt = now // the next poll or look at a snapshot brings the version
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
func (i *idler) look(ctx context.Context, sent time.Time) error {
	ahead := i.scheduler.Ahead(sent)
	params, upTo, highest := i.lookParams(sent)
	seen, err := i.lookOnce(ctx, params)
	if i.heard(err); err != nil {
		i.stir(time.Now())
		return fmt.Errorf("look for work of spool %q: %w", i.spool.Name(), err)
	}
	now := time.Now()
	if seen.renewed > 0 {
		i.scheduler.ExtendSince(ahead, sent.Add(i.config.Lease))
		i.lease.renewedAhead, i.renewed = ahead, sent
	} else {
		i.renewed = time.Time{} // another process may have the lanes
	}
	calm := seen.renewed > 0 && seen.members <= 1 && seen.version == i.control.version && seen.server == i.past.latest && !seen.something && seen.due > 0
	i.active = true
	if !calm {
		i.stir(now)
		i.pace.at, i.doubt = now, now.Add(idleDoubt)
		i.tailing.feed.Miss()
		i.observeVersion(seen.version)
		return nil
	}
	if upTo > 0 {
		i.reader.sweeping.stepped(upTo, highest, now, now.Sub(sent))
	}
	i.lookAt = sent.Add(i.idleInterval(now))
	i.pace.at, i.pace.renewAt, i.control.checkedAt = i.lookAt, i.lookAt, now
	i.pace.by(now.Add(time.Duration(min(seen.due, math.MaxInt32)) * time.Microsecond))
	i.pulse.setFeed(i.tailing.feed)
	return nil
}

// lookParams returns the parameters of a look. If a step of the sweep is due, the look makes it,
// too: then upTo is the id up to which it goes, and highest the highest cursor.
func (i *idler) lookParams(now time.Time) (params dialect.IdleParams, upTo, highest int64) {
	params = dialect.IdleParams{
		JoinParams: dialect.JoinParams{Member: i.member(), InFlight: i.lease.heartbeat(), TTL: i.config.Lease.Microseconds()},
	}
	lanes := i.lanes.numbers()
	for _, number := range lanes {
		l := i.lanes.held[number]
		params.Ranges = append(params.Ranges, dialect.Range{Lane: number, After: l.cursor, UpTo: math.MaxInt64})
	}
	if i.reader.sweeping.due(now) {
		var step dialect.SweepParams
		step, upTo, highest = i.reader.sweepParams(lanes)
		params.Ranges = append(params.Ranges, step.Ranges...)
	}
	return params, upTo, highest
}

func (i *idler) lookOnce(ctx context.Context, params dialect.IdleParams) (seen found, err error) {
	err = i.prepared.Each(ctx, i.db, i.spool.Statements.IdleLook(params), func(scan spool.Scan) error {
		return scan(&seen.renewed, &seen.members, &seen.version, &seen.server, &seen.something, &seen.due)
	})
	return seen, err
}
