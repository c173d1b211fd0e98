package inbox

import (
	"context"
	"errors"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// conflictTries is how often a handler runs at once when its transaction conflicts with others. After that its message waits for a
// pause and runs again: a conflict is neither a failure of the message nor an outage, so it counts for nothing.
const conflictTries = 5

// UntilNoConflict runs a handler, again when it conflicts with others, as often as that is done at once.
func (c *Core) UntilNoConflict(ctx context.Context, run func() error) error {
	var err error
	for range conflictTries {
		if err = run(); !c.IsConflict(err) || ctx.Err() != nil {
			break
		}
	}
	return err
}

// IsConflict says whether a transaction failed because of others at the same time. What a handler says of its error goes before.
func (c *Core) IsConflict(err error) bool {
	if err == nil {
		return false
	}
	var permanent *postbox.PermanentError
	var later *postbox.RetryAfterError
	return !errors.As(err, &permanent) && !errors.As(err, &later) && c.Statements.Kind.Classify(err) == dialect.Conflict
}
