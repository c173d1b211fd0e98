package dialect

import "fmt"

// vocabulary replaces the names of tables, and the words in which databases differ, in texts of
// packages that have statements of their own: see [Statements.Text].
func vocabulary(kind Kind, names Names) replacer {
	messages := names.Table("messages")
	switch kind {
	case MySQL:
		return names.replacer(
			"{now}", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))", "{insert ignore}", "INSERT IGNORE", "{or ignore}", "",
			"{length}", "OCTET_LENGTH", "{position}", "INSTR", "{blob ?}", "?", "{text ?}", "?", "{int ?}", "?", "{unseen ?}", "?",
			"{numbers ?}", "SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j",
			"{after place}", "(m.state > :state OR (m.state = :state AND m.lane > :lane) OR (m.state = :state AND m.lane = :lane AND m.id > :id))",
			"{for update}", "FOR UPDATE", "{any lane}", "", "{retrying}", messages, "{ready}", messages,
			"{by key}", "FORCE INDEX (retrying)", "{of key}", "FORCE INDEX (retrying)", "{by ready}", "FORCE INDEX (ready)", "{by id}", "FORCE INDEX (PRIMARY)",
			"{by due}", "FORCE INDEX (due)", "{by death}", "FORCE INDEX (died_at)", "{latest death}", "d.died_at DESC",
			"{parked}", "m.state > 0 AND "+IsParked, "{waits}", "m.state IN (1, 2)", " {due order}", "", "{few}", "TRUE",
			"{listed}", "JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) c STRAIGHT_JOIN "+messages+" m FORCE INDEX (PRIMARY) ON m.id = c.id",
			"{subject of m}", "CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0')))",
		)
	case SQLite:
		due := "INDEXED BY " + names.Prefix + "messages_due"
		return names.replacer(
			"{now}", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)", "{insert ignore}", "INSERT OR IGNORE", "{or ignore}", "",
			"{length}", "octet_length", "{position}", "instr", "{blob ?}", "?", "{text ?}", "?", "{int ?}", "?", "{unseen ?}", "?",
			"{numbers ?}", "SELECT value AS n FROM json_each(?)", "{chosen}", "(SELECT value AS id FROM json_each(?)) s",
			"{after place}", afterRow, " {for update}", "", "{any lane}", "", "{retrying}", messages, "{ready}", messages,
			" {by key}", "", "{of key}", "INDEXED BY "+names.Prefix+"messages_retrying", " {by ready}", "", " {by id}", "",
			"{by due}", due, " {by death}", "", "{latest death}", "d.died_at DESC",
			"{parked}", "m.state > 0 AND "+IsParked, "{waits}", "m.state > 0", "{due order}", "ORDER BY m.available_at", "{few}", "TRUE",
			"{listed}", messages+" m JOIN json_each(:ids) c ON m.id = c.value",
			"{subject of m}", "unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at))",
		)
	case PostgreSQL, anyKind:
	}
	return names.replacer(
		"{now}", "(date_part('epoch', clock_timestamp()) * 1000000)::bigint", "{insert ignore}", "INSERT", "{or ignore}", "ON CONFLICT DO NOTHING",
		"{length}", "octet_length", "{position}", "strpos", "{blob ?}", "?::bytea", "{text ?}", "?::text", "{int ?}", "?::bigint", "{unseen ?}", unseen,
		"{numbers ?}", "SELECT unnest(?::bigint[]) AS n", "{chosen}", "unnest(?::bigint[]) AS s(id)",
		"{after place}", afterRow, "{for update}", "FOR UPDATE", "{any lane}", anyLane, "{retrying}", names.Table("waiting"), "{ready}", "ONLY "+messages,
		" {by key}", "", " {of key}", "", " {by ready}", "", " {by id}", "", " {by due}", "",
		" {by death}", "", "{latest death}", "d.spool DESC, d.died_at DESC", // PostgreSQL does not know that what IS NULL is constant
		"{parked}", fmt.Sprintf("m.available_at >= %d", ParkedFrom), // another index has the state
		"{waits}", "TRUE", "{due order}", "ORDER BY m.available_at",
		"{few}", "s.id BETWEEN 1 AND 2147483647", // the planner expects few of a range, and does not compile the statement
		"{listed}", listedIn(messages), "{subject of m}", `'m'::bytea || int8send(m.id) || int8send(m.created_at)`,
	)
}

// unseen is a number that the planner does not see. It expects a tenth of the rows up to such a
// limit, and half a percent of those between two such ids. So it finds an index in the order of the
// rows much cheaper than a sort of all of them. Of a number that it sees it may expect all rows, if
// its statistics are wrong.
const unseen = "(SELECT ?::bigint)"

// anyLane lets a search for an id use the primary key, of which the id is the last column.
const anyLane = `
  AND m.state IN (0, 1, 2)
  AND m.lane = ANY(ARRAY(SELECT generate_series(0, 31)::smallint))`

// afterRow is true for messages beyond a place: one comparison of rows is a range of the index.
// MySQL needs the comparison written out to see that.
const afterRow = `(m.state, m.lane, m.id) > (:state, :lane, :id)`

// listedIn looks up ready messages at their places, one by one.
func listedIn(messages string) string {
	return `unnest(:lanes::smallint[], :ids::bigint[]) AS c(lane, id)
CROSS JOIN LATERAL (
	SELECT * FROM ONLY ` + messages + ` m
	WHERE m.spool = :spool AND m.state = 0 AND m.lane = c.lane AND m.id = c.id
	LIMIT 1) m`
}

// Unblocked is true for a message without an earlier retrying message of its key. Keys with the
// same hash can be made, so their texts are compared too, behind the index. It uses the index of
// retrying messages by key, which is empty while nothing fails; {retrying} is the table with that
// index.
const Unblocked = `(m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM {retrying} b {by key} WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))`

// IsParked is true for a message that waits for an operator.
var IsParked = fmt.Sprintf("m.state = 2 AND m.available_at >= %d", int64(ParkedFrom))

// PausedAt is when a spool was paused, and NULL from the end of the pause on.
const PausedAt = `CASE WHEN s.pause_ends_at > {now} THEN s.paused_at END`
