package dialect

import "fmt"

// IsParked is true for a message that waits for an operator.
var IsParked = fmt.Sprintf("m.state = 2 AND m.available_at >= %d", int64(ParkedFrom))

// PausedAt is when a spool was paused, and NULL from the end of the pause on.
const PausedAt = `CASE WHEN s.pause_ends_at > {now} THEN s.paused_at END`

// operate sets the statements of operators. None of them is for a loop.
func (s *Statements) operate() {
	s.spools.text = `
SELECT s.id, s.name, s.version, ` + PausedAt + `, s.paused_by, s.pause_reason, s.pause_ends_at, s.settings,
       (SELECT COUNT(*) FROM {pauses} p WHERE p.spool = s.id), (SELECT COUNT(*) FROM {topic_pauses} t WHERE t.spool = s.id AND t.ends_at > {now})
FROM {spools} s
WHERE {int :spool} = 0 OR s.id = :spool`

	s.Members = `
SELECT spool, holder, in_flight, expires_at FROM {members}
WHERE ? IN (0, spool) AND expires_at > {now} AND sharing = 1
ORDER BY spool, holder`

	s.Clock = `
SELECT {now}`

	// One snapshot, so that a message that moves from one spool to another meanwhile is in one of
	// them. The second part finds messages without a spool. With the LIMIT, the planner cannot make
	// a join of it, which might read the whole table.
	s.Fullness = `
SELECT s.id, s.name, CASE WHEN (SELECT 1 FROM {messages} m {by ready} WHERE m.spool = s.id ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) IS NULL THEN 0 ELSE 1 END
FROM {spools} s
UNION ALL
SELECT o.stray, NULL, 1
FROM ({strays}) o
WHERE o.stray IS NOT NULL`

	s.SettingsOf = `
SELECT settings FROM {spools} WHERE id = ?`

	s.PausedKeys = `
SELECT ordering_key, paused_at, paused_by, reason, ` + never + ` FROM {pauses} WHERE spool = ? ORDER BY paused_at, id`

	s.PausedTopics = `
SELECT topic, paused_at, paused_by, reason, ends_at FROM {topic_pauses} WHERE spool = ? AND ends_at > {now} ORDER BY paused_at, topic`

	s.keepReceived.text = keepReceived

	s.keepHistory.text = `
UPDATE {spools} SET history = :history WHERE id = :spool AND history <> :history`

	s.keepBatches.text = `
UPDATE {spools} SET batches = :rule WHERE id = :spool AND batches <> :rule`

	// The next two find the end of a group in the index, whatever its size.
	s.NextOfLetters = nextGroup("{dead_letters}")
	s.NextOfHistory = nextGroup("{history}")

	// CASE evaluates the cheapest condition first. It reads at most one message of each kind: the
	// first ready one by the index, and one that is due.
	s.nextWaiting.text = `
SELECT g.spool, s.name,
       CASE WHEN EXISTS (SELECT 1 FROM {members} w WHERE w.spool = g.spool AND w.expires_at > {now}) THEN 0
            WHEN (SELECT m.created_at FROM {messages} m {by ready} WHERE m.spool = g.spool AND m.state = 0 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)
                 < {now} - {int :age} THEN 1
            WHEN EXISTS (SELECT 1 FROM {messages} m WHERE m.spool = g.spool AND m.state IN (1, 2) AND m.available_at < (SELECT {now}) - {int :age}) THEN 1
            ELSE 0 END
FROM (SELECT MIN(spool) AS spool FROM {messages} WHERE spool > :after) g
LEFT JOIN {spools} s ON s.id = g.spool`
}

// nextGroup finds the first spool after the given one that has rows in a table.
func nextGroup(table string) string {
	return `
SELECT g.spool, COALESCE(s.settings, ''), COALESCE(s.history, 0)
FROM (SELECT MIN(spool) AS spool FROM ` + table + ` WHERE spool > ?) g
LEFT JOIN {spools} s ON s.id = g.spool`
}

// after is true for messages beyond a place. As one comparison of rows it is a range of the index.
// MySQL needs the comparison written out to see that.
const (
	afterRow   = `(m.state, m.lane, m.id) > (:state, :lane, :id)`
	afterParts = `(m.state > :state OR (m.state = :state AND m.lane > :lane) OR (m.state = :state AND m.lane = :lane AND m.id > :id))`
)
