package drain

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A sweep looks for messages below the cursors of their lanes that were released without this
// process knowing of it. It goes from the beginning to the cursors in steps. Each step covers as
// many ids as take about sweepStep, so that no message waits long for a step, however many index
// entries of deleted messages the database still keeps. If a step finds a message, its lane is read
// from there on.
type sweep struct {
	after int64 // ids up to here have been searched in this round
	span  int64 // number of ids in a step
	next  time.Time
	// pause is the pause after a step that failed. failed is set if a step has failed in this
	// round. reported is set if that was logged.
	pause            time.Duration
	failed, reported bool
}

const (
	// sweepShare limits the time spent on sweeps to a twentieth.
	sweepShare = 20
	// sweepInterval is the shortest pause between two rounds.
	sweepInterval = time.Second
	// sweepStep is the intended maximum duration of a step.
	sweepStep = 2 * time.Millisecond
	// sweepLimit ends a step that takes too long for any reason.
	sweepLimit = time.Second
	// sweepPause is the longest pause after a step that failed.
	sweepPause = time.Minute

	firstSpan, leastSpan, largestSpan = 10_000, 100, 1 << 40
)

// due reports whether it is time for a step.
func (s *sweep) due(now time.Time) bool { return !now.Before(s.next) }

// stepped plans the next step after a step up to upTo that lasted took. A round ends at the highest
// cursor.
func (s *sweep) stepped(upTo, highest int64, now time.Time, took time.Duration) {
	s.pause, s.after, s.next = 0, upTo, now.Add(sweepShare*took)
	switch {
	case took < sweepStep/2:
		s.span = min(4*s.span, largestSpan)
	case took > sweepStep:
		s.span = max(s.span/2, leastSpan)
	}
	if upTo >= highest {
		s.reported = s.reported && s.failed
		s.after, s.failed, s.next = 0, false, later(s.next, now.Add(sweepInterval))
	}
}

// stopped plans the next step after a step that failed: smaller, and later each time.
func (s *sweep) stopped(now time.Time) {
	s.failed = true
	s.span = max(s.span/4, leastSpan)
	s.pause = min(max(2*s.pause, sweepInterval), sweepPause)
	s.next = now.Add(s.pause)
}

// sweep performs a step if one is due, and reports whether it has found a message. A step that
// fails does no harm: the next read begins at the cursors, and will report an unavailable database.
func (r *reader) sweep(ctx context.Context, lanes []int) bool {
	started := time.Now()
	if !r.sweeping.due(started) {
		return false
	}
	params, upTo, highest := r.sweepParams(lanes)
	if len(params.Ranges) == 0 {
		r.sweeping.stepped(highest, highest, started, 0)
		return false
	}
	waited := r.db.Stats().WaitDuration
	found, err := r.findFreed(ctx, params)
	waited = r.db.Stats().WaitDuration - waited
	if err == nil {
		for lane, id := range found {
			r.lanes.lower(lane, id)
		}
		now := time.Now()
		r.sweeping.stepped(upTo, highest, now, now.Sub(started))
		return len(found) > 0
	}
	first := !r.sweeping.failed // a single failed step is not logged: the next step is smaller
	r.sweeping.stopped(time.Now())
	if first || r.sweeping.reported || r.spool.Statements.Kind.Classify(err) == dialect.Unavailable {
		return false
	}
	r.sweeping.reported = true
	advice := "end transactions that have been open for long, vacuum the table of messages, or give this role a longer statement_timeout"
	if !dialect.Coded(err) && waited >= sweepLimit/2 { // for most of the time the statement was waiting for a connection
		advice = fmt.Sprintf("the pool had no free connection within %s, so allow more connections (SetMaxOpenConns), or release them sooner", sweepLimit)
	}
	r.logger.Error("Postbox could not search its table for messages that other processes or operators have released. New messages "+
		"are read as before, and the search is tried again later, in smaller steps. If this persists: "+advice, err,
		watermill.LogFields{"spool": r.spool.Name()})
	return false
}

// sweepParams returns the parameters of the next step, the id up to which it goes, and the highest
// cursor.
func (r *reader) sweepParams(lanes []int) (params dialect.SweepParams, upTo, highest int64) {
	s := &r.sweeping
	if s.span == 0 {
		s.span = firstSpan
	}
	upTo = s.after + s.span
	params = dialect.SweepParams{
		Spool: r.id.Load(), Excluded: merged(r.excludedTopics(), r.leftOut.byLimits), Unordered: r.config.Unordered,
		PausedKeys: r.control.pausedKeys, Held: r.settle.hiddenKeys(),
	}
	for _, number := range lanes {
		cursor := r.lanes.held[number].cursor
		if highest = max(highest, cursor); cursor > s.after {
			params.Ranges = append(params.Ranges, dialect.Range{Lane: number, After: s.after, UpTo: min(cursor, upTo)})
		}
	}
	params.Known = r.scheduler.Between(s.after, upTo)
	return params, upTo, highest
}

// findFreed returns the first message that a step has found in each lane.
func (r *reader) findFreed(ctx context.Context, params dialect.SweepParams) (map[int]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	found := map[int]int64{}
	err := r.prepared.Each(ctx, r.db, r.spool.Statements.Sweep(params), func(scan spool.Scan) error {
		var lane int
		var id sql.NullInt64
		err := scan(&lane, &id)
		if id.Valid {
			found[lane] = id.Int64
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sweep spool %q: %w", r.spool.Name(), err)
	}
	return found, nil
}
