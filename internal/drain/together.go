package drain

import (
	"maps"
	"math"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// readTogether makes the read of all lanes begin at the lowest of their cursors, and returns the id
// up to which it goes. This pays off if the read passes no more ids than it may find messages, and
// either so few messages wait that it reaches the highest id, or most ids are those of messages
// that it may return. Otherwise it returns 0, and so it does if lanes end at different ids because
// of a schedule.
func (r *reader) readTogether(from map[int]int64, limit int) int64 {
	if !r.spool.Statements.ReadsUpTo || len(from) == 0 || r.last.given == 0 || r.ticking() {
		return 0
	}
	lowest := slices.Min(slices.Collect(maps.Values(from)))
	upTo := lowest + int64(limit)
	toTheEnd := r.last.given <= upTo && !r.lanes.anyMore()
	// Beyond the watermark no cursor moves, so the next read would return the same range again.
	within := r.last.given > upTo && r.last.dense && upTo <= r.watermark.safe
	if !toTheEnd && !within {
		return 0
	}
	for number := range from {
		from[number] = lowest
	}
	return upTo
}

// denseShare is the part of the ids of a range that must be those of messages that a read returns.
const denseShare = 2

// dense reports whether the ready messages of a page have most of the ids between the first and the
// last of them.
func (p *page) dense() bool {
	first, last, ready := int64(math.MaxInt64), int64(0), int64(0)
	for _, m := range p.messages {
		if m.Ref.State == dialect.StateReady {
			first, last, ready = min(first, m.Ref.ID), max(last, m.Ref.ID), ready+1
		}
	}
	return ready > 0 && denseShare*ready >= last-first
}
