package dialect

import "fmt"

// Layout says which lanes a spool has: those from First on, Lanes of them. Another number of lanes is a new layout, whose
// lanes have numbers that no earlier layout of the spool had. So the number of its lane shows under which layout a message was
// written: all lanes below First are old ones.
type Layout struct{ First, Lanes int }

// Next returns the number after that of the last lane.
func (l Layout) Next() int { return l.First + l.Lanes }

// Has reports whether the layout has this lane.
func (l Layout) Has(lane int) bool { return l.First <= lane && lane < l.Next() }

// LastLane is the highest number of a lane: columns of lanes have two bytes.
const LastLane = 1<<15 - 1

// VersionMoving is what a read returns instead of the version of a spool while it sees a message in an old lane. No spool
// has this version. Another message of the same key may be in one of the new lanes, and may have been written later.
const VersionMoving = -2

// isRetired is true for a lane that no process may hold again, since its messages move to other lanes.
const isRetired = `l.holder = '' AND l.expires_at = ` + never

// inOldLane is true if a spool has a message in a lane below one. It reads at most one entry of an index for each state,
// with any statistics.
var inOldLane = `(` + below("{ready}", StateReady) + `
	OR ` + below("{retrying}", StateScheduled) + `
	OR ` + below("{retrying}", StateRetrying) + `)`

func below(table string, state int) string {
	return fmt.Sprintf(`(SELECT m.lane FROM %s m {by ready} WHERE m.spool = ? AND m.state = %d AND m.lane < ? ORDER BY m.lane{along} LIMIT 1) IS NOT NULL`, table, state)
}

// inOldLaneArgs and versionArgs return the arguments of inOldLane and of spoolVersion.
func inOldLaneArgs(spool int64, first int) []any {
	return []any{spool, first, spool, first, spool, first}
}

func versionArgs(spool int64, first int) []any { return append(inOldLaneArgs(spool, first), spool) }

// changeLanes sets the statements that change the number of lanes.
func (s *Statements) changeLanes() {
	s.setLanes = `
UPDATE {spools} SET first_lane = ?, lanes = ?, version = version + 1 WHERE id = ? AND first_lane = ? AND lanes = ?`

	s.inOldLanes = `
SELECT CASE WHEN ` + inOldLane + ` THEN 1 ELSE 0 END`

	s.oldLanes = `
SELECT l.lane FROM {lanes} l
WHERE l.spool = ? AND l.lane < ? AND (l.holder IS NULL OR l.expires_at <= {now})
ORDER BY l.lane {skip locked}`

	// Settlements under an earlier token have no effect any more, and an earlier holder cannot renew its lease.
	s.retireLanes = `
UPDATE {lanes} SET holder = '', expires_at = ` + never + `, token = token + 1 WHERE spool = ? AND lane IN ({numbers ?})`

	// One descent of the index for each lane.
	s.oldLane = `
SELECT l.lane FROM {lanes} l
WHERE l.spool = ? AND l.lane < ? AND ` + isRetired + `
  AND (SELECT m.id FROM {messages} m {by ready} WHERE m.spool = l.spool AND m.state = ? AND m.lane = l.lane ORDER BY m.id{along} LIMIT 1) IS NOT NULL
ORDER BY l.lane LIMIT 1`

	s.ofOldLane = `
SELECT m.id, m.key_hash FROM {messages} m {by ready}
WHERE m.spool = ? AND m.state = ? AND m.lane = ?
ORDER BY m.id{along} LIMIT ? {skip locked}`
}

// SetLayout changes the layout of a spool, and its version, unless the spool has another layout than from.
func (s *Statements) SetLayout(spool int64, from, to Layout) Query {
	return Query{Text: s.setLanes, Args: []any{to.First, to.Lanes, spool, from.First, from.Lanes}}
}

// InOldLanes returns 1 if the spool has a message in a lane below first, else 0.
func (s *Statements) InOldLanes(spool int64, first int) Query {
	return Query{Text: s.inOldLanes, Args: inOldLaneArgs(spool, first)}
}

// OldLanes locks the lanes below first that no process holds, and returns their numbers.
func (s *Statements) OldLanes(spool int64, first int) Query {
	return Query{Text: s.oldLanes, Args: []any{spool, first}}
}

// RetireLanes keeps all processes from holding these lanes again.
func (s *Statements) RetireLanes(spool int64, lanes []int64) Query {
	return Query{Text: s.retireLanes, Args: []any{spool, s.lists.numbers(lanes)}}
}

// OldLane returns the lowest retired lane below first that has a message of the state.
func (s *Statements) OldLane(spool int64, first, state int) Query {
	return Query{Text: s.oldLane, Args: []any{spool, first, state}}
}

// LanePart is a part of the messages of a lane.
type LanePart struct {
	Spool       int64
	State, Lane int
}

// OfOldLane locks messages of a lane, and returns id and key hash of each, in the order of their ids. It leaves out those that
// another transaction has locked.
func (s *Statements) OfOldLane(p LanePart, limit int) Query {
	return Query{Text: s.ofOldLane, Args: []any{p.Spool, p.State, p.Lane, limit}}
}

// MoveToLane moves messages to another lane.
func (s *Statements) MoveToLane(p LanePart, ids []int64, lane int) Query {
	return Query{Text: s.moveToLane, Args: []any{s.lists.numbers(ids), lane, p.Spool, p.State, p.Lane}}
}
