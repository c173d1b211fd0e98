package postbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

var (
	// ErrNoTransaction is returned when something must be written in the user's transaction and
	// the context carries none. Put one there with [ContextWithTx] or use forwarder.InTx.
	ErrNoTransaction = errors.New("no transaction in the context")
	// ErrClosed is returned where messages are published, forwarded, deferred or subscribed to with something that was closed before.
	ErrClosed = errors.New("closed")
	// ErrCommitUnknown is returned when the answer to a COMMIT was lost, so that the transaction may
	// have taken effect or not. Look for its effect before doing it again.
	ErrCommitUnknown = errors.New("the outcome of the commit is unknown")
	// ErrDeployment is returned where tables belong to another deployment than the configuration says, as those of a copied
	// database do. See [Database] and docs/security.md.
	ErrDeployment = dialect.ErrDeployment
)

// PermanentError marks an error that no retry can cure: the message goes to the dead letters at once.
type PermanentError struct{ Err error }

// Error returns the text of the error inside.
func (e *PermanentError) Error() string {
	if e.Err == nil {
		return "a permanent error without a reason"
	}
	return e.Err.Error()
}

// Unwrap returns the error inside.
func (e *PermanentError) Unwrap() error { return e.Err }

// Permanent marks err as one that no retry can cure. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &PermanentError{Err: err}
}

// RetryAfterError asks for the next attempt no earlier than After from now.
type RetryAfterError struct {
	Err   error
	After time.Duration
}

// Error returns the text of the error inside and the delay asked for.
func (e *RetryAfterError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("retry after %s", e.After)
	}
	return fmt.Sprintf("%s (retry after %s)", e.Err, e.After)
}

// Unwrap returns the error inside.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// RetryAfter asks for the next attempt after d instead of the backoff's delay. The attempt counts.
// It returns nil for nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &RetryAfterError{Err: err, After: d}
}
