package drain

import (
	"math"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// lane is the state of a lane that a drainer holds.
type lane struct {
	number int
	token  int64
	// cursor is the id after which the lane is read: no message that may be handled has this id or
	// a lower one.
	cursor int64
	// hasMore is set if the last read returned as many messages as it asked for and the lane has
	// more.
	hasMore bool
	// suspect is its mark in the database: it may have suspect messages, see crashguard.go.
	suspect bool
	// exposedToRead is the number of exposed messages that are still to be read, exposedInMemory
	// the number of those in memory.
	exposedToRead, exposedInMemory int
	// unblocked is set if no message stands behind a retry, and blocked if one may, see
	// findBlocked.
	unblocked, blocked bool
	// leftOutFrom is the id after which the lane is read again when a topic is read again that
	// reads have left out because of a limit.
	leftOutFrom int64
	// passed is the id up to which the lane had been read before it went back to leftOutFrom. What
	// [leftOut] lists was not read.
	passed int64
	// endsBefore is the first id that belongs to the next scheduled time, where the lane ends until
	// then; 0 if there is none.
	endsBefore int64
	// leaving lanes are handed back as soon as none of their messages is in memory.
	leaving bool
}

// lower moves the cursor back, if necessary, so that the message with this id is read again.
func (l *lane) lower(id int64) {
	l.cursor, l.leftOutFrom, l.passed = min(l.cursor, id-1), min(l.leftOutFrom, id-1), min(l.passed, id-1)
	l.blocked = false
}

// rereadLeftOut makes the lane be read again from where something was left out.
func (l *lane) rereadLeftOut() {
	passed := max(l.passed, l.cursor)
	l.lower(l.leftOutFrom + 1)
	l.passed = passed
}

// laneSet holds the lanes of a drainer. It belongs to the drainer's goroutine.
type laneSet struct {
	held map[int]*lane
}

func newLaneSet() *laneSet { return &laneSet{held: map[int]*lane{}} }

// numbers returns the lanes that are not leaving, in order.
func (s *laneSet) numbers() []int { return s.staying(func(*lane) bool { return true }) }

// hasMore returns those of these lanes that have more messages than were read.
func (s *laneSet) hasMore() []int { return s.staying(func(l *lane) bool { return l.hasMore }) }

// anyMore reports whether hasMore returns any. A drainer asks at each step, so it makes no list.
func (s *laneSet) anyMore() bool {
	for _, l := range s.held {
		if !l.leaving && l.hasMore {
			return true
		}
	}
	return false
}

func (s *laneSet) staying(wanted func(l *lane) bool) []int {
	var numbers []int
	for number, l := range s.held {
		if !l.leaving && wanted(l) {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// replace takes over the lanes that the database reports, and returns the lanes that were lost. A
// lane that was lost and won again has a new token and starts over.
func (s *laneSet) replace(found map[int]*lane) (lost []int) {
	for number, l := range s.held {
		if same, ok := found[number]; !ok || same.token != l.token {
			lost = append(lost, number)
			delete(s.held, number)
		}
	}
	for number, l := range found {
		if s.held[number] == nil {
			s.held[number] = l
		}
	}
	return lost
}

// older reports whether the database knows a lane with an older token than this process.
func (s *laneSet) older(found map[int]*lane) bool {
	for number, l := range s.held {
		if same := found[number]; same != nil && same.token < l.token {
			return true
		}
	}
	return false
}

// beyondShare returns the lanes beyond the fair share, those with the highest numbers, but for
// those in kept.
func (s *laneSet) beyondShare(share int, kept map[int]bool) []int {
	numbers := s.numbers()
	over := max(len(numbers)-share, 0)
	numbers = slices.DeleteFunc(numbers, func(number int) bool { return kept[number] })
	return numbers[max(len(numbers)-over, 0):]
}

// stay keeps a lane that was leaving. The messages that were dropped are read again. If the lane
// has the mark, this number of them is treated as exposed.
func (l *lane) stay(exposed int) {
	l.leaving = false
	l.lower(1)
	if l.suspect {
		l.exposedToRead = exposed
	}
}

func (s *laneSet) lower(number int, id int64) {
	if l := s.held[number]; l != nil {
		l.lower(id)
	}
}

// rewind makes the next read of each lane start at its beginning.
func (s *laneSet) rewind() {
	for _, l := range s.held {
		l.lower(1)
	}
}

// fairShare is the number of lanes for each member.
func fairShare(members int) int {
	return int(math.Ceil(dialect.Lanes / float64(max(members, 1))))
}
