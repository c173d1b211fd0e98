package inbox

import (
	"context"
	"errors"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// UntilNoConflict runs a handler, again when its transaction conflicts with others, a few times at once. After that its message waits for a
// pause and runs again: a conflict is neither a failure of the message nor an outage, so it counts for nothing.
func (c *Core) UntilNoConflict(ctx context.Context, run func() error) error {
	return spool.UntilNoConflict(func(err error) bool { return c.IsConflict(err) && ctx.Err() == nil }, run)
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
