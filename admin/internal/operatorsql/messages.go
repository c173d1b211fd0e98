package operatorsql

import (
	"cmp"
	"math"
	"strings"

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
	return s.doneMessages.With(f.done(spool, last))
}

// DoneInOrder selects messages of the history in the order in which they were written, with the
// columns of Done. The place after which they begin has the time of creation instead of that of the
// end.
func (s *Statements) DoneInOrder(spool int64, f MessageFilter) dialect.Query {
	return s.doneInOrder.With(f.done(spool, f.After))
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

// ofMessage are conditions of all of them, on a row of this name.
func ofMessage(row string) string {
	return strings.NewReplacer("{row}", row).Replace(`  AND ({text :topic} = '' OR {row}.topic = :topic)
  AND ({length}({blob :key}) = 0 OR {row}.ordering_key = :key)
  AND ({length}({blob :message_id}) = 0 OR {row}.message_id = :message_id)`)
}

// conditions are those of a [MessageFilter] on pending messages, except for the place and the last
// state.
func conditions(k dialect.Kind) string {
	return `m.available_at >= ` + bound(k, "due_from") + ` AND m.available_at < ` + bound(k, "due_before") + `
  AND m.attempts >= ` + bound(k, "least_attempts") + ` AND m.created_at >= ` + bound(k, "created_from") + ` AND m.created_at < ` + bound(k, "created_before") + `
  AND ({text :error} = '' OR {position}(` + lastError + `, :error) > 0)
` + ofMessage("m")
}

// messages sets the statements that look for messages.
func (s *Statements) messages() {
	// The first part has the messages to look at, as a walk along the index. Since all parts are of
	// one snapshot, the last one of these is where the next search begins, and no message is left
	// out. The size is read of those only that are found, because it may be stored elsewhere, and
	// by a subquery, because PostgreSQL without statistics would join the whole table.
	s.searchPending = s.Named(`
WITH p AS (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, m.available_at
	FROM {messages} m {by ready}
	WHERE m.spool = :spool AND {after place} AND m.state <= :last_state
	ORDER BY m.state, m.lane, m.id
	LIMIT {unseen :among})
SELECT 0 AS looked, f.state, f.lane, f.id, f.topic, f.message_id, f.ordering_key, f.attempts, f.created_at, f.due,
	(SELECT COALESCE({length}(m.payload), 0) + {length}(m.metadata) FROM {messages} m {by id} WHERE m.spool = :spool AND m.state = f.state AND m.lane = f.lane AND m.id = f.id) AS size,
	0 AS omitted, '' AS process
FROM (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, ` + dueAt + ` AS due
	FROM p m WHERE ` + conditions(s.Kind) + ` ORDER BY m.state, m.lane, m.id LIMIT :most) f
UNION ALL
SELECT l.* FROM (
	SELECT (SELECT COUNT(*) FROM p) AS looked, m.state, m.lane, m.id, '' AS topic, m.message_id, m.ordering_key, 0 AS attempts, m.created_at, 0 AS due, 0 AS size, 0 AS omitted, '' AS process
	FROM p m ORDER BY m.state DESC, m.lane DESC, m.id DESC LIMIT 1) l`)

	// Those of a key that failed are few, and side by side in an index. SQLite without statistics,
	// and PostgreSQL with them, would read all that failed, so a limit keeps conditions outside.
	s.retryingOfKey = s.Named(`
SELECT ` + pendingColumns + `
FROM (SELECT r.* FROM {retrying} r {of key} WHERE r.spool = :spool AND r.state = 2 AND r.key_hash = :hash ORDER BY r.id LIMIT 1000000000) m
WHERE {after place}
  AND m.state <= :last_state AND ` + conditions(s.Kind) + `
ORDER BY m.state, m.lane, m.id
LIMIT :most`)

	// Walks the index on spool and time backwards.
	s.doneMessages = s.Named(`
SELECT ` + doneColumns + `
FROM {history} h
WHERE h.spool = :spool AND h.done_at <= :last AND (h.done_at < :last OR h.id < :last_id)
  AND h.done_at >= :done_from AND h.done_at < :done_before
` + ofMessage("h") + `
ORDER BY h.done_at DESC, h.id DESC
LIMIT :most`)

	// Walks the primary key, because messages of a key were written in the order of their ids. Rows
	// that the filter leaves out are still read.
	s.doneInOrder = s.Named(`
SELECT ` + doneColumns + `
FROM {history} h
WHERE h.spool = :spool AND h.id >= :last_id AND (h.id > :last_id OR h.created_at > :last)
  AND h.done_at >= :done_from AND h.done_at < :done_before
` + ofMessage("h") + `
ORDER BY h.id, h.created_at
LIMIT :most`)

	if s.Kind == dialect.MySQL {
		s.searchInParts()
	}
}

// Search selects pending messages, among so many of those after the place of the filter. Its first
// column is 0, and the others are state, lane, id, topic, message id, key, attempts, created at,
// due at, size, omitted bytes and process. One more row has as its first column how many messages
// were looked at, unless there was none, and the place of the last of these.
func (s *Statements) Search(spool int64, f MessageFilter, among int) dialect.Query {
	values := f.pending(spool)
	values["among"] = among
	return s.searchPending.With(values)
}

// RetryingOfKey selects messages that have failed, and have a key. It has no first column.
func (s *Statements) RetryingOfKey(k KeyRef, f MessageFilter) dialect.Query {
	values := f.pending(k.Spool)
	values["hash"] = k.Hash
	return s.retryingOfKey.With(values)
}
