package cleanup

import (
	"context"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/counts"
)

// recount returns the work for the snapshot of large numbers, which is the progress of the task. The process that takes
// the task over keeps what was counted before.
func recount(counter *counts.Counter) work {
	return func(ctx context.Context, c *Cleaner, ch *task) (removed int, pause time.Duration, err error) {
		snapshot, pause, err := counter.Step(ctx, ch.cursor)
		if err != nil {
			return 0, 0, asLeft(err, c.statements)
		}
		return 0, pause, c.save(ctx, ch, snapshot)
	}
}
