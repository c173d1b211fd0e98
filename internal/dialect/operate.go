package dialect

import (
	"fmt"
)

// StateDone marks messages of the history in lists of messages; it is never stored.
const StateDone = 3

// IsParked is true for a message that waits for an operator.
var IsParked = fmt.Sprintf("m.state = 2 AND m.available_at >= %d", int64(ParkedFrom))

// DueAt is the time from which a message may be handled. For a ready message it is the creation
// time, because such a message may have no time of its own.
const DueAt = `CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END`

// The columns of a message that is listed. After the times of its creation and of when it may be
// handled, or was done, come its size and the number of bytes that the history has not kept of it.
// Payload and metadata are not among them: each may have megabytes, and a page has many messages.
const (
	PendingColumns = `m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, ` + DueAt + `,
	COALESCE({length}(m.payload), 0) + {length}(m.metadata) AS size, 0 AS omitted`
	DoneColumns = `3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE({length}(h.payload), 0) + {length}(h.metadata) AS size, h.omitted`
)

// pausedAt is when a spool was paused, and NULL from the end of the pause on.
const pausedAt = `CASE WHEN s.pause_ends_at > {now} THEN s.paused_at END`

// operate sets the statements of operators. None of them is for a loop.
func (s *Statements) operate() {
	s.spools.text = `
SELECT s.id, s.name, s.version, ` + pausedAt + `, s.paused_by, s.pause_reason, s.pause_ends_at, s.settings,
       (SELECT COUNT(*) FROM {pauses} p WHERE p.spool = s.id), (SELECT COUNT(*) FROM {topic_pauses} t WHERE t.spool = s.id AND t.ends_at > {now})
FROM {spools} s
WHERE {int :spool} = 0 OR s.id = :spool`

	s.Members = `
SELECT spool, holder, in_flight, expires_at FROM {members}
WHERE ? IN (0, spool) AND expires_at > {now} AND sharing = 1
ORDER BY spool, holder`

	// Counts all messages in one snapshot, so that a message that moves meanwhile is counted once.
	s.Account = `
SELECT (SELECT COUNT(*) FROM {messages} m WHERE m.spool = s.id),
       (SELECT COUNT(*) FROM {history} h WHERE h.spool = s.id),
       (SELECT COUNT(*) FROM {dead_letters} d WHERE d.spool = s.id AND d.origin = 0 AND d.resolved_at IS NULL),
       (SELECT COUNT(*) FROM {dead_letters} d WHERE d.spool = s.id AND d.origin = 0 AND d.resolved_at IS NOT NULL)
FROM {spools} s
WHERE s.id = ?`

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

	s.LaneHolders = `
SELECT l.lane, COALESCE(l.holder, ''), l.token, COALESCE(w.expires_at, 0), l.suspect, CASE WHEN w.expires_at > {now} THEN 1 ELSE 0 END
FROM {lanes} l
LEFT JOIN {members} w ON w.spool = l.spool AND w.holder = l.holder
WHERE l.spool = ?
ORDER BY l.lane`

	s.ChangeSpool = `
UPDATE {spools} SET version = version + 1 WHERE id = ?`

	s.pauseSpool.text = `
UPDATE {spools} AS s SET paused_at = CASE WHEN :pause = 1 THEN {now} END, paused_by = :by, pause_reason = :reason, pause_ends_at = :ends
WHERE s.id = :spool AND (CASE WHEN ` + pausedAt + ` IS NULL THEN 0 ELSE 1 END <> :pause OR (:pause = 1 AND (s.pause_reason <> :reason OR s.pause_ends_at <> :ends)))`

	// Locks the row without the rights that SELECT … FOR UPDATE needs on MySQL.
	s.LockSettings = `
UPDATE {spools} SET settings = settings WHERE id = ?`

	s.SettingsOf = `
SELECT settings FROM {spools} WHERE id = ?`

	s.setSettings.text = `
UPDATE {spools} SET settings = :settings WHERE id = :spool AND settings <> :settings`

	s.pauseKey.text = `
INSERT INTO {pauses} (spool, key_hash, ordering_key, paused_at, paused_by, reason)
SELECT s.id, {int :hash}, {blob :key}, {now}, {text :by}, {text :reason} FROM {spools} s
WHERE s.id = :spool AND NOT EXISTS (SELECT 1 FROM {pauses} z WHERE z.spool = s.id AND z.key_hash = :hash AND z.ordering_key = :key)`

	s.resumeKey = `
DELETE FROM {pauses} WHERE spool = ? AND key_hash = ? AND ordering_key = ?`

	s.PausedKeys = `
SELECT ordering_key, paused_at, paused_by, reason, ` + never + ` FROM {pauses} WHERE spool = ? ORDER BY paused_at, id`

	// The pauses that have ended go with it.
	s.replaceTopicPause = `
DELETE FROM {topic_pauses} WHERE spool = ? AND (ends_at <= {now} OR (topic = ? AND (reason <> ? OR ends_at <> ?)))`

	s.pauseTopic = `
{insert ignore} INTO {topic_pauses} (spool, topic, paused_at, paused_by, reason, ends_at) VALUES (?, ?, {now}, ?, ?, ?) {or ignore}`

	s.resumeTopic = `
DELETE FROM {topic_pauses} WHERE spool = ? AND topic = ?`

	s.PausedTopics = `
SELECT topic, paused_at, paused_by, reason, ends_at FROM {topic_pauses} WHERE spool = ? AND ends_at > {now} ORDER BY paused_at, topic`

	// On PostgreSQL, where the id is the last column of the primary key, that takes a descent for
	// each state and lane.
	s.pendingMessage = `
SELECT ` + PendingColumns + `, m.payload, m.metadata, '', m.message_id
FROM {messages} m
WHERE m.spool = ? AND m.id = ?{any lane}`

	// A drainer that settles the message waits for the transaction that has locked it, and vice
	// versa.
	s.lockListed = `
SELECT m.state, m.lane, m.created_at, CASE WHEN ` + IsParked + ` THEN 1 ELSE 0 END, CASE WHEN m.available_at <= {now} THEN 1 ELSE 0 END, m.available_at, m.attempts
FROM {messages} m {by id}
WHERE m.spool = ? AND m.state = ? AND m.lane = ? AND m.id = ? {for update}`

	// Returns the latest one, if the database has issued the id again, unless a time is given.
	s.doneMessage.text = `
SELECT ` + DoneColumns + `, h.payload, h.metadata, COALESCE(h.source_topic, ''), COALESCE(h.carried_id, h.message_id)
FROM {history} h
WHERE h.spool = :spool AND h.id = :id AND ({int :created_at} = 0 OR h.created_at = :created_at)
ORDER BY h.created_at DESC
LIMIT 1`

	// Walks the primary key.
	s.letterBehind = `
SELECT d.id FROM {dead_letters} d ORDER BY d.id DESC LIMIT 1 OFFSET {unseen ?}`

	// A parked message has no attempt left, and gets all of them again. MySQL assigns columns in
	// this order, and later assignments see the new values.
	startOver := fmt.Sprintf("CASE WHEN available_at >= %d THEN 0 ELSE ", int64(ParkedFrom))
	s.setDue.text = `
UPDATE {messages} {by id} SET
	attempts = ` + startOver + `attempts END,
	starts = ` + startOver + `starts END,
	available_at = CASE WHEN {int :at} > 0 THEN {int :at} WHEN available_at > {now} THEN {now} ELSE available_at END
WHERE spool = :spool AND state = :state AND lane = :lane AND id = :id`

	s.buryWaiting = `
INSERT INTO {dead_letters} (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, {blob ?}, {text ?}, {int ?}, m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, {now}, m.attempts
FROM {messages} m
WHERE m.spool = ? AND m.state = ? AND m.lane = ? AND m.id = ?`

	s.keepReceived.text = keepReceived

	s.removeMessage = `
DELETE FROM {messages} WHERE spool = ? AND state = ? AND lane = ? AND id = ?`

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

// Place is the position of a message in a list, by state, lane and id, or, in the history, by time
// and id.
type Place struct {
	State int
	Lane  int64 // in the history the time
	ID    int64
}

// String returns the place as operators pass it from one page to the next.
func (p Place) String() string { return fmt.Sprintf("%d-%d-%d", p.State, p.Lane, p.ID) }

// after is true for messages beyond a place. As one comparison of rows it is a range of the index.
// MySQL needs the comparison written out to see that.
const (
	afterRow   = `(m.state, m.lane, m.id) > (:state, :lane, :id)`
	afterParts = `(m.state > :state OR (m.state = :state AND m.lane > :lane) OR (m.state = :state AND m.lane = :lane AND m.id > :id))`
)
