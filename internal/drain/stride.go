package drain

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A read passes over messages that it leaves out: those of topics in an outage, of paused ones, of
// limits, and those behind a message of their key that waits. There may be millions of them, and a
// read that passes over all of them takes longer than it may, again and again. So a read goes no
// further than a stride of ids beyond the cursor of each lane, and the next read goes on there at
// once.
//
// That holds for ids up to which no more messages can appear. Beyond them a read goes to the end:
// the next one must see them again together with what has appeared meanwhile. These are the
// messages since the last mark.
type stride struct{ span int64 }

const (
	firstStride, leastStride, largestStride = 100_000, 1000, 1 << 40
	briefRead                               = 100 * time.Millisecond
)

// took adapts the stride to a read, of which it was the bound. It grows while reads are brief. A
// read that is slow does not shorten it: where the database is distant, or compiles each statement,
// reads are slow with any stride, and short ones would take hours to pass over a backlog. So only a
// read that failed does, as one that was out of time.
func (s *stride) took(took time.Duration, failed bool) {
	switch {
	case failed:
		s.span = max(s.span/8, leastStride)
	case took < briefRead:
		s.span = min(2*s.span, largestStride)
	}
}

// upTo returns the id up to which a lane is read after its cursor, or 0 for its end.
func (r *reader) upTo(cursor int64) int64 {
	if end := cursor + r.stride.span; end <= r.watermark.safe {
		return end
	}
	return 0
}

// bounded reports whether a read ends before the end of a lane.
func bounded(params dialect.FetchParams) bool {
	for _, c := range params.Cursors {
		if c.UpTo > 0 {
			return true
		}
	}
	return false
}
