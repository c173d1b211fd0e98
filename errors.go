package postbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/commit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

var (
	// ErrNoTransaction is returned when a write needs the user's transaction and the context
	// carries none, or none any more because the function that had it has returned. Put one there
	// with [ContextWithTx], or use postbox.InTx.
	ErrNoTransaction = errors.New("no transaction in the context")
	// ErrClosed is returned when a part that was closed before is asked to publish, forward, defer
	// or subscribe.
	ErrClosed = errors.New("closed")
	// ErrCommitUnknown is returned when the answer to a COMMIT was lost, so that the transaction
	// may or may not have taken effect. Look for its effect before doing it again.
	ErrCommitUnknown = commit.ErrUnknown
	// ErrDeployment is returned when the tables belong to another deployment than the configured
	// one, as the tables of a copied database do. See [Database] and docs/security.md.
	ErrDeployment = dialect.ErrDeployment
)

// PermanentError marks an error that no retry can cure: the message becomes a dead letter at once.
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

// Error returns the text of the wrapped error, and the delay.
func (e *RetryAfterError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("retry after %s", e.After)
	}
	return fmt.Sprintf("%s (retry after %s)", e.Err, e.After)
}

// Unwrap returns the wrapped error.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// RetryAfter makes the next attempt wait for d instead of the pause of the retry profile. The
// attempt counts. It returns nil for nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &RetryAfterError{Err: err, After: d}
}
