package dialect

// A limit that all processes share is a few rows, each of which one statement changes by itself,
// and only if its token is as it was read: of those that want the same, one gets it, and the others
// read again. So no process holds a lock here, and one that is cut off holds up no other.
const (
	// A slot whose holder is no member can be taken.
	limits = `
SELECT name, slot, token, {now}, CASE WHEN holder = :holder THEN 'mine'
       WHEN holder IN (SELECT w.holder FROM {members} w WHERE w.spool = :spool) THEN '' ELSE 'free' END
FROM {limits} WHERE spool = :spool ORDER BY name, slot`

	addSlots = `
{insert ignore} INTO {limits} (spool, name, slot, token)
SELECT :spool, :name, f.n, {now} FROM ({numbers :slots}) f {or ignore}`

	changeSlots = `
UPDATE {limits} SET holder = :holder, token = :token
WHERE spool = :spool AND name = :name AND slot IN ({numbers :slots}) AND token IN ({numbers :tokens})`
)

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
	return s.limits.with(args{"spool": m.Spool, "holder": m.Holder})
}

// AddSlots inserts slots that are not there, with the time as token.
func (s *Statements) AddSlots(l Limit, numbers []int64) Query {
	return s.addSlots.with(args{"spool": l.Spool, "name": l.Name, "slots": s.lists.numbers(numbers)})
}

// ChangeSlots gives those slots that nobody has changed since they were read to a member, or with
// nil to nobody. The new token is the time for a rate, and else a random number that no other slot
// has.
func (s *Statements) ChangeSlots(l Limit, holder any, token int64, slots []Slot) Query {
	numbers, tokens := make([]int64, len(slots)), make([]int64, len(slots))
	for i, slot := range slots {
		numbers[i], tokens[i] = slot.Number, slot.Token
	}
	return s.changeSlots.with(args{
		"spool": l.Spool, "name": l.Name, "holder": holder, "token": token,
		"slots": s.lists.numbers(numbers), "tokens": s.lists.numbers(tokens),
	})
}
