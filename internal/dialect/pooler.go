package dialect

import "errors"

// FromPooler reports whether an error is typical of statements behind a pooler in transaction mode,
// where each transaction may run on another connection of the server. PostgreSQL then does not know
// the prepared statement, knows one of the same name, or knows one of another client, with other
// parameters. PgBouncer's own errors have the code of the last case, for example for an option of
// the address that it does not accept. No code is proof. A server that is reached directly also
// returns 26000 after DEALLOCATE ALL, 42P05 for a name that the user has taken, and 08P01 for any
// violation of the protocol, also when a connection begins. That code is still of the kind
// [Unavailable].
func FromPooler(err error) bool {
	said, found := findReport(err, PostgreSQL)
	return found && (said.state == "26000" || said.state == "42P05" || said.state == "08P01")
}

// PoolerHint says how to fix an error [FromPooler].
const PoolerHint = "this looks like a pooler in transaction mode, such as PgBouncer: docs/poolers.md says what to set"

// hintedError is an error with [PoolerHint].
type hintedError struct{ error }

// Error returns the text of the error and the hint.
func (e hintedError) Error() string { return e.error.Error() + " (" + PoolerHint + ")" }

// Unwrap returns the wrapped error.
func (e hintedError) Unwrap() error { return e.error }

// HintAtPooler adds [PoolerHint], once, to an error [FromPooler]. It returns other errors
// unchanged.
func HintAtPooler(err error) error {
	var hinted hintedError
	if err == nil || errors.As(err, &hinted) || !FromPooler(err) {
		return err
	}
	return hintedError{err}
}
