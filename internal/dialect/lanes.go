package dialect

import (
	"fmt"
	"strings"
)

// Layout says which lanes a spool has: those from First on, Lanes of them. Another number of lanes is a new layout, whose
// lanes have numbers that no earlier layout of the spool had. So the number of its lane shows under which layout a message was
// written. An old lane is one that the layout does not have. Almost always it is one below First. A higher one is in use after the
// database has gone back to a state before a change of the layout, as long as processes use the layout that was lost.
type Layout struct{ First, Lanes int }

// Next returns the number after that of the last lane.
func (l Layout) Next() int { return l.First + l.Lanes }

// Has reports whether the layout has this lane.
func (l Layout) Has(lane int) bool { return l.First <= lane && lane < l.Next() }

// LastLane is the highest number of a lane. Columns of lanes have two bytes, and statements compare them with [Layout.Next], which must fit, too.
const LastLane = 1<<15 - 2

// VersionMoving is what a read returns instead of the version of a spool while it sees a message in a lane that the layout of
// the reader does not have. No spool has this version. Another message of the same key may be in one of the new lanes, and may have been written later.
const VersionMoving = -2

// isRetired is true for a lane that no process may hold again, since its messages move to other lanes.
const isRetired = `l.holder = '' AND l.expires_at = ` + never

// usedOldLane is an old lane that has messages, or NULL. It reads at most two entries of an index for each state, with any statistics.
var usedOldLane = `COALESCE(` + firstLane("{ready}", StateReady, "<") + `,
	` + firstLane("{retrying}", StateScheduled, "<") + `,
	` + firstLane("{retrying}", StateRetrying, "<") + `,
	` + higherLanes + `)`

// usedHigherLane is an old lane behind those of the layout that has messages, or NULL. Before the first change of the number of lanes
// no lane is below them.
var (
	usedHigherLane = `COALESCE(` + higherLanes + `)`
	higherLanes    = firstLane("{ready}", StateReady, ">=") + `,
	` + firstLane("{retrying}", StateScheduled, ">=") + `,
	` + firstLane("{retrying}", StateRetrying, ">=")
)

// firstLane is the first lane below a number, or from it on, that has messages of a state, or NULL.
func firstLane(table string, state int, side string) string {
	return firstLaneOf("?", table, state, side+" ?")
}

// firstLaneOf is the first lane of a spool within a bound that has messages of a state, or NULL.
func firstLaneOf(spool, table string, state int, bound string) string {
	return fmt.Sprintf(`(SELECT m.lane FROM %s m {by ready} WHERE m.spool = %s AND m.state = %d AND m.lane %s ORDER BY m.lane{along} LIMIT 1)`, table, spool, state, bound)
}

// usedOldLaneArgs and versionArgs return the arguments of usedOldLane and of spoolVersion.
func usedOldLaneArgs(spool int64, of Layout) []any {
	return append([]any{spool, of.First, spool, of.First, spool, of.First}, usedHigherLaneArgs(spool, of)...)
}

// usedHigherLaneArgs returns the arguments of usedHigherLane.
func usedHigherLaneArgs(spool int64, of Layout) []any {
	return []any{spool, of.Next(), spool, of.Next(), spool, of.Next()}
}

func versionArgs(spool int64, of Layout) []any { return append(usedOldLaneArgs(spool, of), spool) }

// changeLanes sets the statements that change the number of lanes.
func (s *Statements) changeLanes() {
	// A version by the clock is not given out again by a database that has gone back, so that a drainer with a layout that was lost notices.
	s.setLanes = `
UPDATE {spools} SET first_lane = ?, lanes = ?, version = CASE WHEN version < {now} THEN {now} ELSE version + 1 END WHERE id = ? AND first_lane = ? AND lanes = ?`

	s.highestLane = `
SELECT COALESCE(MAX(l.lane), -1) FROM {lanes} l WHERE l.spool = ?`

	s.beginMove = `
UPDATE {spools} SET version = version + 1 WHERE id = ? AND first_lane = ? AND lanes = ?`

	used := `
SELECT q.lane FROM (SELECT ` + usedOldLane + ` AS lane) q WHERE q.lane IS NOT NULL`
	s.usedOldLane, s.rowlessLane = used, used+`
  AND NOT EXISTS (SELECT 1 FROM {lanes} l WHERE l.spool = ? AND l.lane = q.lane)`

	if s.Kind == MySQL {
		s.movingLanes = s.eachSpool(usedOldLane)
	} else {
		var lanes []string
		for _, bound := range []string{"< s.first_lane", ">= s.first_lane + s.lanes"} {
			for state, table := range []string{"{ready}", "{retrying}", "{retrying}"} {
				lanes = append(lanes, firstLaneOf("s.id", table, state, bound))
			}
		}
		s.movingLanes = s.eachSpool("COALESCE(" + strings.Join(lanes, ",\n\t") + ")")
	}

	s.oldLanes = `
SELECT l.lane FROM {lanes} l
WHERE l.spool = ? AND (l.lane < ? OR l.lane >= ?) AND (l.holder IS NULL OR l.expires_at <= {now})
ORDER BY l.lane {skip locked}`

	// Settlements under an earlier token have no effect any more, and an earlier holder cannot renew its lease.
	s.retireLanes = `
UPDATE {lanes} SET holder = '', expires_at = ` + never + `, token = token + 1 WHERE spool = ? AND lane IN ({numbers ?})`

	// Lanes from First on are left out: others have locked their rows.
	s.retiredLanes = `
SELECT l.lane FROM {lanes} l WHERE l.spool = ? AND l.lane < ? AND ` + isRetired

	// A process that writes into such a lane again makes its row anew.
	s.dropRetired = `
DELETE FROM {lanes} WHERE lane IN ({numbers ?}) AND spool = ? AND holder = '' AND expires_at = ` + never

	// One descent of the index for each lane.
	s.oldLane = `
SELECT l.lane FROM {lanes} l
WHERE l.spool = ? AND (l.lane < ? OR l.lane >= ?) AND ` + isRetired + `
  AND (SELECT m.id FROM {messages} m {by ready} WHERE m.spool = l.spool AND m.state = ? AND m.lane = l.lane ORDER BY m.spool, m.state, m.lane, m.id{along} LIMIT 1) IS NOT NULL
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

// HighestLane returns the number of the highest lane that has a row, or -1.
func (s *Statements) HighestLane(spool int64) Query {
	return Query{Text: s.highestLane, Args: []any{spool}}
}

// BeginMove changes the version of a spool, and keeps others from changing its layout until the transaction ends. It changes no row if the
// spool has another layout.
func (s *Statements) BeginMove(spool int64, of Layout) Query {
	return Query{Text: s.beginMove, Args: []any{spool, of.First, of.Lanes}}
}

// UsedOldLane returns an old lane that has messages, or no row if there is none.
func (s *Statements) UsedOldLane(spool int64, of Layout) Query {
	return Query{Text: s.usedOldLane, Args: usedOldLaneArgs(spool, of)}
}

// MovingLanes returns of each spool its id, and an old lane that has messages, or NULL if there is
// none.
func (s *Statements) MovingLanes(spools []int64, layouts []Layout) []Query {
	if s.Kind != MySQL {
		return s.ofSpools(s.movingLanes, spools, 0, 0)
	}
	args := make([][]any, len(spools))
	for i, spool := range spools {
		args[i] = append([]any{spool}, usedOldLaneArgs(spool, layouts[i])...)
	}
	return repeatedFor(s.movingLanes, args)
}

// RowlessLane is [Statements.UsedOldLane] if that lane has no row.
func (s *Statements) RowlessLane(spool int64, of Layout) Query {
	return Query{Text: s.rowlessLane, Args: append(usedOldLaneArgs(spool, of), spool)}
}

// OldLanes locks the old lanes that no process holds, and returns their numbers. Lanes that are retired are not among them.
func (s *Statements) OldLanes(spool int64, of Layout) Query {
	return Query{Text: s.oldLanes, Args: []any{spool, of.First, of.Next()}}
}

// RetireLanes keeps all processes from holding these lanes again.
func (s *Statements) RetireLanes(spool int64, lanes []int64) Query {
	return Query{Text: s.retireLanes, Args: []any{spool, s.lists.numbers(lanes)}}
}

// RetiredLanes returns the numbers of the retired lanes below those of the layout. It locks no row.
func (s *Statements) RetiredLanes(spool int64, of Layout) Query {
	return Query{Text: s.retiredLanes, Args: []any{spool, of.First}}
}

// DropRetired deletes the rows of these lanes, as far as they are retired. It locks no row of another lane.
func (s *Statements) DropRetired(spool int64, lanes []int64) Query {
	return Query{Text: s.dropRetired, Args: []any{s.lists.numbers(lanes), spool}}
}

// OldLane returns the lowest retired old lane that has a message of the state.
func (s *Statements) OldLane(spool int64, of Layout, state int) Query {
	return Query{Text: s.oldLane, Args: []any{spool, of.First, of.Next(), state}}
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
