package postbox

import (
	"errors"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/commit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

var (
	// ErrNoTransaction is returned when a write needs the user's transaction and the context
	// carries none, or none any more because the function that had it has returned.
	ErrNoTransaction = txscope.ErrNone
	// ErrClosed is returned when a part that was closed before is asked to publish, forward, defer
	// or subscribe.
	ErrClosed = errors.New("closed")
	// ErrCommitUnknown is returned when the answer to a COMMIT was lost, so that the transaction
	// may or may not have taken effect. Look for its effect before doing it again.
	ErrCommitUnknown = commit.ErrUnknown
	// ErrDeployment is returned when the tables belong to another deployment than the configured
	// one, as the tables of a copied database do. See [Database] and docs/security.md.
	ErrDeployment = dialect.ErrDeployment
	// ErrPermanent is found by errors.Is in an error that no retry can cure: see [Permanent].
	ErrPermanent = verdict.ErrPermanent
)

// Permanent marks err as one that no retry can cure: the message becomes a dead letter at once. It
// returns nil for nil. errors.Is finds [ErrPermanent] in the result.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &verdict.PermanentError{Err: err}
}

// RetryAfter makes the next attempt wait for d, if it is above 0, instead of the pause of the retry
// profile; in an inbox behind watermill-sql for 5 s at most. The attempt counts. It returns nil for
// nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &verdict.RetryAfterError{Err: err, After: d}
}
