package dialect

import "errors"

// FromPooler says whether an error is one that statements meet behind a pooler in transaction mode, where each transaction may run on another
// connection of the server. PostgreSQL then does not know the statement that was prepared, knows one of the same name, or knows one of
// another client, with other parameters. Errors of PgBouncer itself have the code of the latter, such as for an option of the address that it
// does not take. No code is proof: a server that is reached directly has 26000 too after DEALLOCATE ALL, 42P05 for a name that the user has taken,
// and 08P01 for whatever breaks the protocol, also when a connection begins. That code is of the kind [Unavailable] all the same.
func FromPooler(err error) bool {
	said, found := findReport(err, PostgreSQL)
	return found && (said.state == "26000" || said.state == "42P05" || said.state == "08P01")
}

// PoolerHint says what to do about an error [FromPooler].
const PoolerHint = "this looks like a pooler in transaction mode, such as PgBouncer: docs/poolers.md says what to set"

// hintedError is an error with [PoolerHint].
type hintedError struct{ error }

// Error returns the text of the error and the hint.
func (e hintedError) Error() string { return e.error.Error() + " (" + PoolerHint + ")" }

// Unwrap returns the error itself.
func (e hintedError) Unwrap() error { return e.error }

// HintAtPooler adds [PoolerHint], once, to an error [FromPooler]. Others come back as they are.
func HintAtPooler(err error) error {
	var hinted hintedError
	if err == nil || errors.As(err, &hinted) || !FromPooler(err) {
		return err
	}
	return hintedError{err}
}
