package counts

// Accuracy says how a number was found.
type Accuracy string

const (
	// Exact is a number that was counted by the statement that was asked.
	Exact Accuracy = "exact"
	// Counted is an earlier count, in pages, so messages that moved meanwhile may be missing or counted twice.
	Counted Accuracy = "counted"
	// AtLeast is a count that was stopped, with no earlier one.
	AtLeast Accuracy = "at least"
)

// Number is a number of messages.
type Number struct {
	N        int
	Accuracy Accuracy
}

// plus adds two numbers. The sum is as accurate as the less accurate one.
func (n Number) plus(m Number) Number {
	sum := Number{n.N + m.N, Exact}
	for _, accuracy := range []Accuracy{Counted, AtLeast} {
		if n.Accuracy == accuracy || m.Accuracy == accuracy {
			sum.Accuracy = accuracy
		}
	}
	return sum
}

// ladder chooses between what a capped scan has found, and an earlier count.
type ladder struct {
	limit  int
	oldest int64 // time of the oldest earlier count that was used, 0 for none
}

// choose returns the number of messages. read is the number of rows that the scan has read, and found how many of them
// were meant. An earlier count below found is out of date.
func (l *ladder) choose(read, found int, earlier int, at int64) Number {
	switch {
	case read <= l.limit:
		return Number{found, Exact}
	case at != 0 && earlier >= found:
		if l.oldest == 0 || at < l.oldest {
			l.oldest = at
		}
		return Number{earlier, Counted}
	default:
		return Number{min(found, l.limit), AtLeast}
	}
}
