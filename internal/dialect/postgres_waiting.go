package dialect

import "slices"

// On PostgreSQL, waiting messages are in {waiting}, which inherits from {messages}: see the
// migration that creates it. The state of a message decides in which of the two it is, so most
// statements name {messages} and mean both. Statements through which many messages go at the first
// attempt name one table: ONLY {messages} contains the ready ones.

// seekStrays returns whether moveStrays has something to do, because moveStrays takes a
// transaction.
const seekStrays = `
SELECT COUNT(*) FROM (
	SELECT 1 FROM ONLY {messages} m WHERE m.spool = ? AND m.state > 0
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) s`

// moveStrays moves waiting messages that are among the ready ones, where no process looks for them.
// Their state was changed by hand, or by a process that does not know {waiting}.
const moveStrays = `
WITH m AS (DELETE FROM ONLY {messages} WHERE spool = ? AND state > 0 RETURNING *),
w AS (INSERT INTO {waiting} SELECT * FROM m RETURNING 1)` + howManyMoved

// howManyMoved ends a statement that moves messages. A trigger of the user may keep a message out
// of the other table without an error, and then fewer messages arrive than were taken.
const howManyMoved = `
SELECT (SELECT COUNT(*) FROM m), (SELECT COUNT(*) FROM w)`

// Conditions for insertRows, if only some rows wait.
const (
	ofReady   = ` AND r.state = 0`
	ofWaiting = ` AND r.state > 0`
)

// appendMixed appends such rows.
var appendMixed = `
WITH r AS MATERIALIZED (` + packedMixed + `),
w AS (` + insertRows("{waiting}", waits, `r`, ofWaiting) + `)` + insertRows("{messages}", isReady, `r`, ofReady)

// allReady reports whether all rows are ready.
func allReady(rows []Row) bool {
	return !slices.ContainsFunc(rows, func(r Row) bool { return r.State != StateReady })
}

// wereReady reports whether all messages were ready before they were handled.
func wereReady(refs []Ref) bool {
	return !slices.ContainsFunc(refs, func(r Ref) bool { return r.State != StateReady })
}
