package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Limits hold for all processes together, without a coordinator: the share of a process follows from the lanes that it
// holds, see package schedule, limits.go. So the rules for lanes also keep the limits:
//
//   - A lane that is given away no longer counts for the share from that moment on. It is handed back when all that runs
//     has a slot of the other lanes.
//   - A process whose leases may be over hands out nothing.
//   - If a limit has fewer slots than there are lanes, the holder of the first lane works, as with batches over the whole
//     queue. Another process hands its lanes back and stands by. It is no member meanwhile, so that a process with other
//     limits takes all lanes instead of leaving a share to it.

// ValidLimits returns all problems of limits. Only if messages of one key may run at the same time can that be limited.
func ValidLimits(l postbox.Limits, unordered bool) (problems []error) {
	if err := l.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("Limits: %w", err))
	}
	for _, topic := range slices.Sorted(maps.Keys(l.Topics)) {
		if err := spool.CheckTopic(topic); topic != "" && err != nil { // Validate names an empty one
			problems = append(problems, fmt.Errorf("Limits: Topics: %w", err))
		}
	}
	if l.EachKey.AtOnce != 0 && !unordered {
		problems = append(problems, errors.New("Limits: EachKey: leave out AtOnce, which is for queues of mode Single: otherwise a key has one message at a time"))
	}
	return problems
}

// shareLimits tells the scheduler the limits, and which lanes count for the share of this process.
func (d *Drainer) shareLimits() {
	d.scheduler.SetLimits(d.config.Limits)
	d.scheduler.Share(d.lanes.numbers())
}

// alone reports whether one process at a time works.
func (d *Drainer) alone() bool {
	return d.config.Exclusive || schedule.Alone(d.config.Limits)
}

// standsBy reports whether this drainer leaves all lanes to others because of a limit.
func (d *Drainer) standsBy() bool {
	return d.alone() && !d.config.Exclusive && d.lanes.held[0] == nil
}

// spared returns those of these lanes that can be handed back without a running message losing its
// slot.
func (d *Drainer) spared(lanes []int) (spared []int) {
	if len(lanes) == 0 { // as in nearly each step: do not list what is held
		return nil
	}
	kept := slices.Collect(maps.Keys(d.lanes.held))
	for _, number := range lanes {
		without := slices.DeleteFunc(slices.Clone(kept), func(of int) bool { return of == number })
		if d.scheduler.Spares(without) {
			spared, kept = append(spared, number), without
		}
	}
	return spared
}

// leaveOut decides which topics and keys the next reads leave out because a limit holds them up. When one is read again,
// its lanes are read from where it was first left out. When it is left out again, they go on where they were before: else
// each turn of a topic would read over all its messages that wait, to find those of others behind them. If the memory is
// full, messages that wait for limits make room.
func (d *Drainer) leaveOut() {
	defer d.makeRoom()
	left := d.scheduler.LeftOut(d.pageSize().messages)
	before := d.leavesOut()
	if !before && len(left.Topics)+len(left.Keys) == 0 {
		return
	}
	if missing(d.leftOut.Topics, left.Topics) || missing(d.leftOut.Keys, left.Keys) {
		d.notePassing()
		for _, l := range d.lanes.held {
			l.goBack()
		}
		d.pace.at, d.readmits = time.Time{}, true
	}
	if !before {
		for _, l := range d.lanes.held {
			l.leftOut = l.cursor
		}
	}
	if d.leftOut = left; missing(d.passing.Topics, left.Topics) || missing(d.passing.Keys, left.Keys) {
		return
	}
	for _, l := range d.lanes.held {
		l.cursor, l.passed = max(l.cursor, l.passed), 0
	}
}

// notePassing records what reads have left out up to where the lanes were read. A lane that went back before and has not
// come there again may have been read with other topics and keys left out.
func (d *Drainer) notePassing() {
	behind := false
	for _, l := range d.lanes.held {
		behind = behind || l.cursor < l.passed
	}
	if !behind {
		d.passing = d.leftOut
		return
	}
	d.passing.Topics = merged(d.passing.Topics, d.leftOut.Topics)
	d.passing.Keys = merged(d.passing.Keys, d.leftOut.Keys)
}

// makeRoom drops messages of topics and keys that are left out, if the memory is full. They are still in the database.
func (d *Drainer) makeRoom() {
	if _, full := d.room(); !full {
		return
	}
	for _, m := range d.scheduler.MakeRoom() {
		d.lanes.unload(m)
		if l := d.lanes.held[m.Ref.Lane]; l != nil {
			l.leftOut = min(l.leftOut, m.Ref.ID-1)
		}
	}
}

// leavesOut reports whether reads leave out messages because of limits.
func (d *Drainer) leavesOut() bool { return len(d.leftOut.Topics)+len(d.leftOut.Keys) > 0 }

// readLimit returns the number of messages that the next read asks for. It is small when a topic or key is read again that
// was left out: that one alone could fill the page, and most of its messages would have to make room again.
func (d *Drainer) readLimit(most int) int {
	if d.readmits {
		d.readmits = false
		return max(min(most, d.pageSize().messages/schedule.LimitedShare), 1)
	}
	return most
}

// missing reports whether one of the first is not among the others.
func missing[T comparable](first, others []T) bool {
	return slices.ContainsFunc(first, func(one T) bool { return !slices.Contains(others, one) })
}

// merged returns both lists as one in order, without repetitions.
func merged[T string | int64](a, b []T) []T {
	if len(b) == 0 {
		return a
	}
	both := slices.Concat(a, b)
	slices.Sort(both)
	return slices.Compact(both)
}

// Repeat waits until a handler may be given messages once more that it has had in the same call, and counts them. If it
// reports false, they have to be postponed.
func (d *Drainer) Repeat(ctx context.Context, messages []*spool.Message) bool {
	return d.scheduler.Repeat(ctx, messages)
}

// reportLimits reports how many messages wait for limits.
func (d *Drainer) reportLimits() {
	if limited := !d.config.Limits.None(); limited || d.limited {
		now := d.scheduler.HeldUp()
		d.configured.Meter.HeldUp(now.Total, now.Topics, now.Keys)
		d.limited = limited
	}
}
