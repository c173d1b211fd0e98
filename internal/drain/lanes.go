package drain

import (
	"math"
	"slices"
)

// lane is what a drainer remembers of a lane that it holds.
type lane struct {
	number int
	token  int64
	// cursor is the id from which on the lane is read: nothing that may be handled stands at or below it.
	cursor int64
	// hasMore lanes gave as much as was asked for and have more.
	hasMore bool
	// suspect is the lane's mark in the database, see crashguard.go; suspects are the messages that are still to be
	// treated as such when they are read, and loaded those that were and are in memory.
	suspect          bool
	suspects, loaded int
	// leaving lanes are handed back as soon as nothing of theirs is in memory.
	leaving bool
}

// lower makes sure that the message with this id is read again.
func (l *lane) lower(id int64) { l.cursor = min(l.cursor, id-1) }

// laneSet is the lanes of a drainer. It belongs to the drainer's goroutine.
type laneSet struct {
	held map[int]*lane
}

func newLaneSet() *laneSet { return &laneSet{held: map[int]*lane{}} }

// numbers returns the lanes that are not leaving, in order.
func (s *laneSet) numbers() []int { return s.staying(func(*lane) bool { return true }) }

// hasMore returns those of them that have more than was read. A drainer asks at each step.
func (s *laneSet) hasMore() []int { return s.staying(func(l *lane) bool { return l.hasMore }) }

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

// replace takes over what the database says of the lanes, and returns those that were lost. A lane that was
// lost and won again has a new token and starts over.
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

// older says that the database knows a lane under an older token than this process.
func (s *laneSet) older(found map[int]*lane) bool {
	for number, l := range s.held {
		if same := found[number]; same != nil && same.token < l.token {
			return true
		}
	}
	return false
}

// surplus returns the lanes beyond the fair share, those with the highest numbers. The lanes that are kept are not among them.
func (s *laneSet) surplus(share int, kept map[int]bool) []int {
	numbers := s.numbers()
	over := max(len(numbers)-share, 0)
	numbers = slices.DeleteFunc(numbers, func(number int) bool { return kept[number] })
	return numbers[max(len(numbers)-over, 0):]
}

// stay keeps a lane that was leaving. What was forgotten of it is read again, and so many of it are treated as suspects
// where it has the mark.
func (l *lane) stay(suspects int) {
	l.leaving, l.cursor = false, 0
	if l.suspect {
		l.suspects = suspects
	}
}

func (s *laneSet) lower(number int, id int64) {
	if l := s.held[number]; l != nil {
		l.lower(id)
	}
}

// rewind lets each lane be read from its beginning next time.
func (s *laneSet) rewind() {
	for _, l := range s.held {
		l.cursor = 0
	}
}

// fairShare is the number of lanes for each of so many members.
func fairShare(lanes, members int) int {
	return int(math.Ceil(float64(lanes) / float64(max(members, 1))))
}
