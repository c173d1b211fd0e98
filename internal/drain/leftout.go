package drain

import "slices"

// leftOut says which topics reads leave out.
type leftOut struct {
	byLimits []string // because of limits
	passing  []string // what earlier reads left out, up to the place from which a lane was read again
	readmits bool     // the next read is the first with a topic that was left out
	// excluded are those that the handler or an operator excludes, at the last read, which may have
	// gone beyond their messages. excludes are those of the read under way.
	excluded, excludes []string
}

// excludedTopics lists the topics whose messages must not be read now: those that the handler
// excludes, and those that operators have paused.
func (r *reader) excludedTopics() []string {
	excluded := r.handler.Excluded()
	if len(r.control.topics) == 0 {
		return excluded
	}
	excluded = slices.Concat(excluded, r.control.topics)
	slices.Sort(excluded)
	return slices.Compact(excluded)
}

// leaveOut decides which topics the next reads leave out because a limit holds them up. When one is
// read again, its lanes are read from where it was first left out. When it is left out again, they
// go on where they were before: else each turn of a topic would read over all its messages that
// wait, to find those of others behind them. If the memory is full, messages that wait for limits
// make room.
func (r *reader) leaveOut() {
	defer r.makeRoom()
	leftOut := r.scheduler.LeftOut(r.pageSize().messages)
	before := r.leavesOut()
	if !before && len(leftOut) == 0 {
		return
	}
	if missing(r.leftOut.byLimits, leftOut) {
		r.notePassing()
		for _, l := range r.lanes.held {
			l.rereadLeftOut()
		}
		r.leftOut.readmits = true
		r.pace.now()
	}
	if !before {
		for _, l := range r.lanes.held {
			l.leftOutFrom = l.cursor
		}
	}
	if r.leftOut.byLimits = leftOut; missing(r.leftOut.passing, leftOut) {
		return
	}
	for _, l := range r.lanes.held {
		l.cursor, l.passed = max(l.cursor, l.passed), 0
	}
}

// notePassing records what reads have left out up to where the lanes were read. A lane that went
// back before and has not come there again may have been read with other topics left out.
func (r *reader) notePassing() {
	behind := false
	for _, l := range r.lanes.held {
		behind = behind || l.cursor < l.passed
	}
	if !behind {
		r.leftOut.passing = r.leftOut.byLimits
		return
	}
	r.leftOut.passing = merged(r.leftOut.passing, r.leftOut.byLimits)
}

// makeRoom drops messages of topics that are left out, if the memory is full. They are still in the
// database.
func (r *reader) makeRoom() {
	if _, full := r.room(); !full {
		return
	}
	for _, m := range r.scheduler.MakeRoom() {
		r.lanes.unexpose(m)
		if l := r.lanes.held[m.Ref.Lane]; l != nil {
			l.leftOutFrom = min(l.leftOutFrom, m.Ref.ID-1)
		}
	}
}

// leavesOut reports whether reads leave out messages because of limits.
func (r *reader) leavesOut() bool { return len(r.leftOut.byLimits) > 0 }

// missing reports whether one of the first is not among the others.
func missing(first, others []string) bool {
	return slices.ContainsFunc(first, func(one string) bool { return !slices.Contains(others, one) })
}

// merged returns both lists as one in order, without repetitions.
func merged(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	both := slices.Concat(a, b)
	slices.Sort(both)
	return slices.Compact(both)
}
