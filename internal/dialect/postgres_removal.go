package dialect

import "strings"

// PostgreSQL plans a statement with statistics of its tables, and keeps the plan. A table of
// messages fills and empties within moments, so its statistics are mostly wrong. How many pages it
// has is always right, so the tables of messages keep a megabyte when they are empty: see the
// migration. Then one row by an index costs less than the table in any plan. But TRUNCATE, VACUUM
// FULL and a restored dump take the megabyte away. So rows are looked up one by one along an
// index, CROSS JOIN LATERAL with a LIMIT, and a plan that reads the whole table does so once, and
// finds each row in a hash.

// stored looks up the message of each row of s, one by one. An id has two bounds since a search for
// one number has no order.
const stored = `
FROM {source}
CROSS JOIN LATERAL (
	SELECT {columns}
	FROM {messages} m
	WHERE m.spool = (SELECT :spool::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at{as read}
	ORDER BY m.id
	LIMIT 1{lock}) AS m`

// held is stored for messages whose lane is held under the token of their ref. The lanes are read
// once: IS TRUE keeps the planner from making a join of it.
const held = stored + `
WHERE ((s.lane, s.token) IN (SELECT l.lane, l.token FROM {lanes} l WHERE l.spool = :spool)) IS TRUE`

const (
	// Lists are in subqueries, which hide how long they are: else short ones are planned anew.
	//
	// fromRefs has a row for each ref, fromAsRead one for each message as it was read.
	fromRefs = `unnest((SELECT :states::smallint[]), (SELECT :lanes::smallint[]), (SELECT :tokens::bigint[]), (SELECT :ids::bigint[]), (SELECT :times::bigint[]))
	AS s(state, lane, token, id, created_at)`
	fromAsRead = `unnest((SELECT :states::smallint[]), (SELECT :lanes::smallint[]), (SELECT :tokens::bigint[]), (SELECT :ids::bigint[]), (SELECT :times::bigint[]),
	(SELECT :attempts::integer[]), (SELECT :least::smallint[]), (SELECT :most::smallint[]))
	AS s(state, lane, token, id, created_at, attempts, least, most)`
	// fromAnyState has the refs in each state, since the state is a part of the key.
	fromAnyState = `(SELECT state, lane, id, created_at
	FROM unnest((SELECT :lanes::smallint[]), (SELECT :ids::bigint[]), (SELECT :times::bigint[])) AS r(lane, id, created_at),
	     (VALUES (0::smallint), (1::smallint), (2::smallint)) AS t(state)) AS s`
	// unchangedSince is true for a message that is as its process has read it.
	unchangedSince = ` AND m.attempts = s.attempts AND m.starts BETWEEN s.least AND s.most`
)

// storedRefs is stored for a source, and returns these columns of m.
func storedRefs(source, columns, lock string) string {
	return newReplacer("{source}", source, "{columns}", columns, "{as read}", "", "{lock}", lock).Replace(stored)
}

// found is held for refs, with these columns of m.
func found(columns string) string {
	return newReplacer("{source}", fromRefs, "{columns}", columns, "{as read}", "", "{lock}", "").Replace(held)
}

// foundAsRead is held for the messages of a source that are as they were read.
func foundAsRead(source, columns, lock string) string {
	return newReplacer("{source}", source, "{columns}", columns, "{as read}", unchangedSince, "{lock}", lock).Replace(held)
}

// seemsDear is true for each message, but the planner expects its evaluation to cost as much as
// reading ten pages. Otherwise, with few messages in the table, the planner would consider reading
// the whole table cheaper than one lookup, and would keep that plan while the table grows.
const seemsDear = `CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END`

// onServer is true if the server is one of a list, or if there is no list: see
// [Statements.RemoveWhere]. It is asked once, and not for each message.
const onServer = `(SELECT :servers::text IS NULL OR strpos(:servers::text, '|' || ` + PostgresIncarnation + ` || '|') > 0)`

// removeOne removes one message that was ready, with less work than the function.
const removeOne = `
DELETE FROM ONLY {messages} m
USING {lanes} l
WHERE m.spool = :spool AND m.state = 0 AND m.lane = :lane AND m.id = :id AND m.created_at = :created_at
  AND l.spool = m.spool AND l.lane = m.lane AND l.token = :token
  AND ` + onServer

// remove removes messages in any state: the migration has the function. The statement has an empty
// row for each of them, so a driver counts them as it does for a DELETE.
const remove = `
SELECT FROM (SELECT generate_series(1, CASE WHEN ` + onServer + `
	THEN {remove}(:spool, :states::smallint[], :lanes::smallint[], :tokens::bigint[], :ids::bigint[], :times::bigint[]) ELSE 0 END)) AS removed`

func (p postgres) remove(spool int64, refs []Ref) Query {
	if len(refs) == 1 && wereReady(refs) {
		ref := refs[0]
		return p.removeOne.with(args{"spool": spool, "lane": ref.Lane, "id": ref.ID, "created_at": ref.CreatedAt, "token": ref.Token, "servers": nil})
	}
	return p.removeMany.with(p.refs(spool, refs))
}

// place contains the location of a message and its previous state. By the time of the statement
// another transaction may have changed it, and a waiting message may have the same ctid as a ready
// one.
const place = `m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts`

// inPlace applies a statement to the messages that were found, if the given columns are unchanged.
// They are looked up in a hash, so a plan that was made for a nearly empty table, and reads all of
// it, does so once.
func inPlace(found, statement, columns string) string {
	mine := "m." + strings.ReplaceAll(columns, ", ", ", m.")
	return `
WITH r AS MATERIALIZED (SELECT m.*` + found + `)
` + statement + `
WHERE m.ctid = ANY(ARRAY(SELECT place FROM r))
  AND ((m.tableoid, ` + mine + `) IN (SELECT part, ` + columns + ` FROM r)) IS TRUE
  AND ` + seemsDear
}
