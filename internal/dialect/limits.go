package dialect

// Limit is a limit of a spool: of a topic, or with an empty name that of the whole.
type Limit struct {
	Spool int64
	Name  string
}

// Slot is one row of a limit: with number 0 its rate, whose token is the time until which it is
// used up, and with another number one call that may run at a time.
type Slot struct {
	Number, Token int64
	State         string // "mine", "free", or empty if another member holds it
}

// Limits returns name, number, token, the time, and the state of each slot, in the order of the
// first two.
func (s *Statements) Limits(m Member) Query {
	return s.query("Limits", args{"spool": m.Spool, "holder": m.Holder})
}

// AddSlots inserts slots that are not there, with the time as token.
func (s *Statements) AddSlots(l Limit, numbers []int64) Query {
	return s.query("AddSlots", args{"spool": l.Spool, "name": l.Name, "slots": s.lists.numbers(numbers)})
}

// ChangeSlots gives those slots that nobody has changed since they were read to a member, or with
// nil to nobody. The new token is the time for a rate, and else a random number that no other slot
// has.
func (s *Statements) ChangeSlots(l Limit, holder any, token int64, slots []Slot) Query {
	numbers, tokens := make([]int64, len(slots)), make([]int64, len(slots))
	for i, slot := range slots {
		numbers[i], tokens[i] = slot.Number, slot.Token
	}
	return s.query("ChangeSlots", args{
		"spool": l.Spool, "name": l.Name, "holder": holder, "token": token,
		"slots": s.lists.numbers(numbers), "tokens": s.lists.numbers(tokens),
	})
}
