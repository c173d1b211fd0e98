package dialect

import (
	"slices"
	"strings"
)

// On PostgreSQL messages that wait stand in {waiting}, which inherits from {messages}: see the migration that makes it. A message
// is in one of the two, by its state, so most statements name {messages} and mean both. Those that many messages go through
// at the first attempt name the table they mean: ONLY {messages} is that of the ready ones.

// moveToWaiting moves a message that waits for another attempt for the first time to those that wait. A transaction that waits for its row meanwhile finds
// that it is gone.
const moveToWaiting = `
WITH t AS (SELECT ?::bigint AS delay, ?::integer AS attempts, ?::integer AS started),
m AS (
	DELETE FROM ONLY {messages} m USING {lanes} l
	WHERE m.spool = ? AND m.state = ? AND m.lane = ? AND m.id = ? AND m.created_at = ? AND m.attempts = ? AND m.starts BETWEEN ? AND ?
	  AND l.spool = m.spool AND l.lane = m.lane AND l.token = ?
	  AND ` + seemsDear + `
	RETURNING m.*),
w AS (
	INSERT INTO {waiting} (state, available_at, attempts, starts,
	                       id, spool, lane, key_hash, created_at, topic, message_id, ordering_key, payload, metadata)
	SELECT 2, {now} + t.delay, m.attempts + t.attempts, m.starts - t.started,
	       m.id, m.spool, m.lane, m.key_hash, m.created_at, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata
	FROM m, t
	RETURNING 1)` + howManyMoved

// seekStrays tells whether moveStrays has something to do, which takes a transaction.
const seekStrays = `
SELECT COUNT(*) FROM (
	SELECT 1 FROM ONLY {messages} m WHERE m.spool = ? AND m.state > 0
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) s`

// moveStrays moves messages that wait among the ready ones, where no process looks for them: their state was changed by hand, or
// a process did that does not know of {waiting}.
const moveStrays = `
WITH m AS (DELETE FROM ONLY {messages} WHERE spool = ? AND state > 0 RETURNING *),
w AS (INSERT INTO {waiting} SELECT * FROM m RETURNING 1)` + howManyMoved

// howManyMoved ends a statement that moves messages. A trigger of the user may keep a message from the other table without an error, and then fewer
// arrive than were taken.
const howManyMoved = `
SELECT (SELECT COUNT(*) FROM m), (SELECT COUNT(*) FROM w)`

// Conditions for insertRows, where only some rows wait.
const (
	ofReady   = ` AND r.state = 0`
	ofWaiting = ` AND r.state > 0`
)

// appendMixed appends such rows.
var appendMixed = `
WITH r AS MATERIALIZED (` + packedRows + `),
w AS (` + insertRows("{waiting}", `r`, ofWaiting) + `)` + insertRows("{messages}", `r`, ofReady)

// ready names the table of the ready messages in a statement of messages.
func ready(statement string) string {
	return strings.ReplaceAll(statement, "{messages}", "ONLY {messages}")
}

// allReady tells whether no row is to wait.
func allReady(rows []Row) bool {
	return !slices.ContainsFunc(rows, func(r Row) bool { return r.State != StateReady })
}

// wereReady tells whether no message waited before it was handled.
func wereReady(refs []Ref) bool {
	return !slices.ContainsFunc(refs, func(r Ref) bool { return r.State != StateReady })
}
