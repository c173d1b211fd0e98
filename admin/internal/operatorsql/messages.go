package operatorsql

import (
	"cmp"
	"math"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// MessageFilter selects messages of a spool. The zero value of a field means any, except that Limit
// is required.
type MessageFilter struct {
	Topic, Key, MessageID string
	States                [2]int // the first and the last one, of pending messages
	Parked                Parked
	DoneFrom, DoneBefore  int64 // of the history
	// The next fields are of pending messages. ErrorText is a part of the last failure.
	ErrorText                  string
	MinAttempts                int
	CreatedFrom, CreatedBefore int64
	After                      Place // the zero value is the beginning
	Limit                      int
}

// Parked says whether a filter selects pending messages that are parked.
type Parked int

// The values of Parked in a [MessageFilter].
const (
	ParkedAny Parked = iota
	ParkedNo
	ParkedOnly
)

// pending returns the arguments of a walk along pending messages, from the place of the filter up
// to its last state, and of conditions.
func (f MessageFilter) pending(spool int64) args {
	p := f.After
	if p == (Place{}) {
		p = Place{State: f.States[0], Lane: -1}
	}
	from, before := int64(-dialect.ParkedFrom), int64(math.MaxInt64)
	switch f.Parked {
	case ParkedNo:
		before = dialect.ParkedFrom
	case ParkedOnly:
		from = dialect.ParkedFrom
	case ParkedAny:
	}
	values := f.common(spool)
	values["state"], values["lane"], values["id"], values["last_state"], values["error"] = p.State, p.Lane, p.ID, f.States[1], f.ErrorText
	values["bounds"] = bounds{
		"due_from": from, "due_before": before, "least_attempts": int64(f.MinAttempts),
		"created_from": f.CreatedFrom, "created_before": cmp.Or(f.CreatedBefore, math.MaxInt64),
	}.list()
	return values
}

// Done selects messages of the history, the latest first. Its columns are those of Search without
// the first, with [StateDone], and with the time when the message was done instead of due
// at.
func (s *Statements) Done(spool int64, f MessageFilter) dialect.Query {
	last := f.After
	if last == (Place{}) {
		last = Place{Lane: math.MaxInt64, ID: math.MaxInt64}
	}
	return s.query("DoneMessages", f.done(spool, last))
}

// DoneInOrder selects messages of the history in the order in which they were written, with the
// columns of Done. The place after which they begin has the time of creation instead of that of the
// end.
func (s *Statements) DoneInOrder(spool int64, f MessageFilter) dialect.Query {
	return s.query("DoneInOrder", f.done(spool, f.After))
}

// done returns the arguments of both.
func (f MessageFilter) done(spool int64, last Place) args {
	values := f.common(spool)
	values["last"], values["last_id"], values["done_from"] = last.Lane, last.ID, f.DoneFrom
	values["done_before"] = cmp.Or(f.DoneBefore, math.MaxInt64)
	return values
}

// common returns the arguments of all of them.
func (f MessageFilter) common(spool int64) args {
	return args{"spool": spool, "topic": f.Topic, "key": []byte(f.Key), "message_id": []byte(f.MessageID), "most": f.Limit}
}

// Search selects pending messages, among so many of those after the place of the filter. Its first
// column is 0, and the others are state, lane, id, topic, message id, key, attempts, created at,
// due at, size, omitted bytes and process. One more row has as its first column how many messages
// were looked at, unless there was none, and the place of the last of these.
func (s *Statements) Search(spool int64, f MessageFilter, among int) dialect.Query {
	values := f.pending(spool)
	values["among"] = among
	return s.query("SearchPending", values)
}

// RetryingOfKey selects messages that have failed, and have a key. It has no first column.
func (s *Statements) RetryingOfKey(k KeyRef, f MessageFilter) dialect.Query {
	values := f.pending(k.Spool)
	values["hash"] = k.Hash
	return s.query("RetryingOfKey", values)
}
