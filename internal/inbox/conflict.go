package inbox

import (
	"context"
	"errors"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// UntilNoConflict runs a handler. If its transaction conflicts with others, it runs the handler
// again, a few times immediately. After that the message waits for a pause and runs again. A
// conflict is neither a failure of the message nor an outage, so it does not count.
func (c *Core) UntilNoConflict(ctx context.Context, run func() error) error {
	return spool.UntilNoConflict(func(err error) bool { return c.IsConflict(err) && ctx.Err() == nil }, run)
}

// IsConflict reports whether a transaction failed because of concurrent ones. If the handler has
// classified its error, that takes precedence.
func (c *Core) IsConflict(err error) bool {
	if err == nil {
		return false
	}
	var later *verdict.RetryAfterError
	return !verdict.IsPermanent(err) && !errors.As(err, &later) && c.Statements.Kind.Classify(err) == dialect.Conflict
}
