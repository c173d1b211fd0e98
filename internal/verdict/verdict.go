// Package verdict has the errors by which a handler says what becomes of its message. Users make
// them with postbox.Permanent and postbox.RetryAfter.
package verdict

import (
	"errors"
	"fmt"
	"time"
)

// ErrPermanent is what errors.Is finds in each [PermanentError].
var ErrPermanent = errors.New("permanent")

// PermanentError marks an error that no retry can cure.
type PermanentError struct{ Err error }

// Error returns the text of the wrapped error.
func (e *PermanentError) Error() string {
	if e.Err == nil {
		return "a permanent error without a reason"
	}
	return e.Err.Error()
}

// Unwrap returns the wrapped error.
func (e *PermanentError) Unwrap() error { return e.Err }

// Is says whether the target is [ErrPermanent].
func (e *PermanentError) Is(target error) bool { return target == ErrPermanent }

// IsPermanent says whether an error of a user is permanent. errors.Is would call its method Is,
// which may panic.
func IsPermanent(err error) bool {
	var permanent *PermanentError
	return errors.As(err, &permanent)
}

// RetryAfterError asks for the next attempt no earlier than After from now.
type RetryAfterError struct {
	Err   error
	After time.Duration
}

// Error returns the text of the wrapped error, and the delay.
func (e *RetryAfterError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("retry after %s", e.After)
	}
	return fmt.Sprintf("%s (retry after %s)", e.Err, e.After)
}

// Unwrap returns the wrapped error.
func (e *RetryAfterError) Unwrap() error { return e.Err }
