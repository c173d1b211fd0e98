package dialect

import "slices"

// On PostgreSQL, waiting messages are in {waiting}, which inherits from {messages}: see the
// migration that creates it. The state of a message decides in which of the two it is, so most
// statements name {messages} and mean both. Statements through which many messages go at the first
// attempt name one table: ONLY {messages} contains the ready ones.

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
