package inboxstore

import (
	"context"
	"errors"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// conflictTries is how often a handler runs at once when its transaction conflicts with others. After that its message waits for a
// pause and runs again: a conflict is neither a failure of the message nor an outage, so it counts for nothing.
const conflictTries = 5

// untilNoConflict runs a handler, again when it conflicts with others, as often as that is done at once.
func (s *Store) untilNoConflict(ctx context.Context, run func() error) error {
	var err error
	for range conflictTries {
		if err = run(); !s.isConflict(err) || ctx.Err() != nil {
			break
		}
	}
	return err
}

// conflictError is a conflict that comes out of [Store.Once]. It is no [HandlerError], so it is not counted.
type conflictError struct{ err error }

// Error returns the text of the error.
func (e conflictError) Error() string {
	return "inbox: conflict with another transaction: " + e.err.Error()
}

// Unwrap returns the database's error.
func (e conflictError) Unwrap() error {
	var ofHandler *HandlerError
	if errors.As(e.err, &ofHandler) {
		return ofHandler.Err
	}
	return e.err
}

// isConflict says whether a transaction failed because of others at the same time. What a handler says of its error goes before.
func (s *Store) isConflict(err error) bool {
	if err == nil {
		return false
	}
	var permanent *postbox.PermanentError
	var later *postbox.RetryAfterError
	return !errors.As(err, &permanent) && !errors.As(err, &later) && s.statements.Kind.Classify(err) == dialect.Conflict
}
