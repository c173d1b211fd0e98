package operatorsql

import "github.com/postbox-go/watermill-postbox/internal/dialect"

// searchInParts sets the statements of a search on MariaDB, which would copy all that Search looks
// at into a table on its disk, several times. The first finds in an index where the search ends,
// and the second reads what lies before that. On PostgreSQL, a place would not end a walk along the
// index.
func (s *Statements) searchInParts() {
	s.searchEnd = s.Named(`
WITH p AS (
	SELECT m.state, m.lane, m.id
	FROM {messages} m {by ready}
	WHERE m.spool = :spool AND {after place} AND m.state <= :last_state
	ORDER BY m.state, m.lane, m.id LIMIT :among)
SELECT (SELECT COUNT(*) FROM p), l.state, l.lane, l.id
FROM p l
ORDER BY l.state DESC, l.lane DESC, l.id DESC
LIMIT 1`)

	// The size would be read of all messages that are looked at if it were a column of m.
	s.searchUpTo = s.Named(`
SELECT 0 AS looked, m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, ` + dueAt + `,
	(SELECT COALESCE({length}(b.payload), 0) + {length}(b.metadata) FROM {messages} b {by id} WHERE b.id = m.id) AS size,
	0 AS omitted, '' AS process
FROM {messages} m {by ready}
WHERE m.spool = :spool AND {after place}
  AND (m.state < :last_state OR (m.state = :last_state AND m.lane < :last_lane) OR (m.state = :last_state AND m.lane = :last_lane AND m.id <= :last_id))
  AND ` + conditions(s.Kind) + `
ORDER BY m.state, m.lane, m.id
LIMIT :most`)
}

// SearchEnd returns how many of so many pending messages there are after the place of a filter, up
// to its last state, and state, lane and id of the last of these. It returns no row if there is
// none. There is no such statement if [Statements.Search] finds out by itself.
func (s *Statements) SearchEnd(spool int64, f MessageFilter, among int) (q dialect.Query, separate bool) {
	if s.Kind != dialect.MySQL {
		return dialect.Query{}, false
	}
	values := f.pending(spool)
	values["among"] = among
	return s.searchEnd.With(values), true
}

// SearchUpTo is [Statements.Search] up to a place, which [Statements.SearchEnd] has found, and
// without the row that has none of the messages.
func (s *Statements) SearchUpTo(spool int64, f MessageFilter, last Place) dialect.Query {
	values := f.pending(spool)
	values["last_state"], values["last_lane"], values["last_id"] = last.State, last.Lane, last.ID
	return s.searchUpTo.With(values)
}
