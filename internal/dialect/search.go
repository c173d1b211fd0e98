package dialect

// conditions are those of a [MessageFilter] on pending messages, except for the place and the last state.
const conditions = `m.available_at >= ? AND m.available_at < ?
  AND m.attempts >= ? AND m.created_at >= ? AND m.created_at < ?
  AND ({text ?} = '' OR {position}(` + lastError + `, ?) > 0)
  AND ({text ?} = '' OR m.topic = ?)
  AND ({length}({blob ?}) = 0 OR m.ordering_key = ?)
  AND ({length}({blob ?}) = 0 OR m.message_id = ?)`

// search sets the statements that look for messages, dead letters and rows of the audit log among a bounded number of them.
func (s *Statements) search() {
	// The first part has the messages to look at, as a walk along the index. Since all parts are of one snapshot, the last one of these
	// is where the next search begins, and no message is left out. The size is read of those only that are found, because it may be stored elsewhere, and
	// by a subquery, because PostgreSQL without statistics would join the whole table.
	s.searchPending = `
WITH p AS (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, m.available_at
	FROM {messages} m {by ready}
	WHERE m.spool = ? AND {after ?} AND m.state <= ?
	ORDER BY m.state, m.lane, m.id
	LIMIT ?)
SELECT 0 AS looked, f.state, f.lane, f.id, f.topic, f.message_id, f.ordering_key, f.attempts, f.created_at, f.due,
	(SELECT COALESCE({length}(m.payload), 0) + {length}(m.metadata) FROM {messages} m {by id} WHERE m.spool = ? AND m.state = f.state AND m.lane = f.lane AND m.id = f.id) AS size,
	0 AS omitted
FROM (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, ` + dueAt + ` AS due
	FROM p m WHERE ` + conditions + ` ORDER BY m.state, m.lane, m.id LIMIT ?) f
UNION ALL
SELECT l.* FROM (
	SELECT (SELECT COUNT(*) FROM p) AS looked, m.state, m.lane, m.id, '' AS topic, m.message_id, m.ordering_key, 0 AS attempts, m.created_at, 0 AS due, 0 AS size, 0 AS omitted
	FROM p m ORDER BY m.state DESC, m.lane DESC, m.id DESC LIMIT 1) l`

	// The messages of a key that have failed are few, and side by side in an index. Without statistics SQLite would read all that have failed.
	s.retryingOfKey = `
SELECT ` + pendingColumns + `
FROM (SELECT r.* FROM {retrying} r {of key} WHERE r.spool = ? AND r.state = 2 AND r.key_hash = ? ORDER BY r.id) m
WHERE {after ?}
  AND m.state <= ? AND ` + conditions + `
ORDER BY m.state, m.lane, m.id
LIMIT ?`

	// Walk the primary key.
	s.letterSearchEnd.text = `
SELECT COUNT(*), COALESCE(MAX(p.id), 0), (SELECT COALESCE(MAX(id), 0) FROM {dead_letters})
FROM (SELECT d.id FROM {dead_letters} d WHERE d.id > :after ORDER BY d.id LIMIT {int :among}) p`

	s.letterBehind = `
SELECT d.id FROM {dead_letters} d ORDER BY d.id DESC LIMIT 1 OFFSET {a part ?}`
}

// Search selects pending messages as Pending does, among so many of those after the place of the filter. Its first column is 0, and the others are those of
// Pending. One more row has as its first column how many messages were looked at, unless there was none, and the place of the last of these.
func (s *Statements) Search(spool int64, f MessageFilter, among int) Query {
	args := append(s.from(spool, f), among, spool)
	return Query{Text: s.searchPending, Args: append(args, f.conditions()...)}
}

// RetryingOfKey selects messages as Pending does that have failed, and have a key.
func (s *Statements) RetryingOfKey(k KeyRef, f MessageFilter) Query {
	args := append([]any{k.Spool, k.Hash}, s.from(k.Spool, f)[1:]...)
	return Query{Text: s.retryingOfKey, Args: append(args, f.conditions()...)}
}

// LetterSearchEnd returns how many dead letters there are among the first ones after an id, and the
// ids of the last of these and of the last one of all.
func (s *Statements) LetterSearchEnd(after int64, among int) Query {
	return s.letterSearchEnd.with(args{"after": after, "among": among})
}

// LetterBehind returns the id of the dead letter with so many later ones, or no row if there are fewer.
func (s *Statements) LetterBehind(later int) Query {
	return Query{Text: s.letterBehind, Args: []any{later}}
}

// place returns the arguments of a comparison with a place.
func (s *Statements) place(p Place) []any {
	if s.Kind == MySQL {
		return []any{p.State, p.State, p.Lane, p.State, p.Lane, p.ID}
	}
	return []any{p.State, p.Lane, p.ID}
}
