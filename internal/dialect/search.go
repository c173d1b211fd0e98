package dialect

// conditions are those of a [MessageFilter] on pending messages, except for the place and the last
// state.
func (k Kind) conditions() string {
	return `m.available_at >= ` + k.bound("due_from") + ` AND m.available_at < ` + k.bound("due_before") + `
  AND m.attempts >= ` + k.bound("least_attempts") + ` AND m.created_at >= ` + k.bound("created_from") + ` AND m.created_at < ` + k.bound("created_before") + `
  AND ({text :error} = '' OR {position}(` + lastError + `, :error) > 0)
` + ofMessage("m")
}

// search sets the statements that look for messages, dead letters and rows of the audit log among a
// bounded number of them.
func (s *Statements) search() {
	// The first part has the messages to look at, as a walk along the index. Since all parts are of
	// one snapshot, the last one of these is where the next search begins, and no message is left
	// out. The size is read of those only that are found, because it may be stored elsewhere, and
	// by a subquery, because PostgreSQL without statistics would join the whole table.
	s.searchPending.text = `
WITH p AS (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, m.available_at
	FROM {messages} m {by ready}
	WHERE m.spool = :spool AND {after place} AND m.state <= :last_state
	ORDER BY m.state, m.lane, m.id
	LIMIT {unseen :among})
SELECT 0 AS looked, f.state, f.lane, f.id, f.topic, f.message_id, f.ordering_key, f.attempts, f.created_at, f.due,
	(SELECT COALESCE({length}(m.payload), 0) + {length}(m.metadata) FROM {messages} m {by id} WHERE m.spool = :spool AND m.state = f.state AND m.lane = f.lane AND m.id = f.id) AS size,
	0 AS omitted
FROM (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, ` + dueAt + ` AS due
	FROM p m WHERE ` + s.Kind.conditions() + ` ORDER BY m.state, m.lane, m.id LIMIT :most) f
UNION ALL
SELECT l.* FROM (
	SELECT (SELECT COUNT(*) FROM p) AS looked, m.state, m.lane, m.id, '' AS topic, m.message_id, m.ordering_key, 0 AS attempts, m.created_at, 0 AS due, 0 AS size, 0 AS omitted
	FROM p m ORDER BY m.state DESC, m.lane DESC, m.id DESC LIMIT 1) l`

	// The messages of a key that have failed are few, and side by side in an index. Without
	// statistics SQLite would read all that have failed.
	s.retryingOfKey.text = `
SELECT ` + pendingColumns + `
FROM (SELECT r.* FROM {retrying} r {of key} WHERE r.spool = :spool AND r.state = 2 AND r.key_hash = :hash ORDER BY r.id) m
WHERE {after place}
  AND m.state <= :last_state AND ` + s.Kind.conditions() + `
ORDER BY m.state, m.lane, m.id
LIMIT :most`

	// Walk the primary key.
	s.letterSearchEnd.text = `
SELECT COUNT(*), COALESCE(MAX(p.id), 0) FROM (SELECT d.id FROM {dead_letters} d WHERE d.id > :after ORDER BY d.id LIMIT {unseen :among}) p`

	s.letterBehind = `
SELECT d.id FROM {dead_letters} d ORDER BY d.id DESC LIMIT 1 OFFSET {unseen ?}`
}

// Search selects pending messages, among so many of those after the place of the filter. Its first
// column is 0, and the others are state, lane, id, topic, message id, key, attempts, created at,
// due at, size and omitted bytes. One more row has as its first column how many messages were
// looked at, unless there was none, and the place of the last of these.
func (s *Statements) Search(spool int64, f MessageFilter, among int) Query {
	values := f.pending(spool)
	values["among"] = among
	return s.searchPending.with(values)
}

// RetryingOfKey selects messages that have failed, and have a key. It has no first column.
func (s *Statements) RetryingOfKey(k KeyRef, f MessageFilter) Query {
	values := f.pending(k.Spool)
	values["hash"] = k.Hash
	return s.retryingOfKey.with(values)
}

// LetterSearchEnd returns how many of so many dead letters there are after an id, and the id of the
// last of these.
func (s *Statements) LetterSearchEnd(after int64, among int) Query {
	return s.letterSearchEnd.with(args{"after": after, "among": among})
}

// LetterBehind returns the id of the dead letter with so many later ones, or no row if there are
// fewer.
func (s *Statements) LetterBehind(later int) Query {
	return Query{Text: s.letterBehind, Args: []any{later}}
}
