package place

import (
	"context"
	"fmt"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
)

// Pending is what has been written and not come through, in the outbox and the queues together.
type Pending struct {
	Messages, Dead int
	Oldest         time.Duration
}

// Pending asks what operators ask. It reads each pending message, since a trial is judged by exact
// numbers.
func (p *Place) Pending(ctx context.Context) (Pending, error) {
	operator, err := admin.New(postbox.Database{DB: p.watch, Dialect: postbox.PostgreSQL}, admin.Config{}, nil)
	if err != nil {
		return Pending{}, err
	}
	queues, err := operator.Queues(ctx)
	if err != nil {
		return Pending{}, err
	}
	var all Pending
	for _, q := range queues {
		account, err := operator.Account(ctx, q.Target)
		if err != nil {
			return Pending{}, err
		}
		all.Messages += account.Pending
		all.Dead += account.Dead
		all.Oldest = max(all.Oldest, q.OldestAge)
	}
	return all, nil
}

// pollEvery is the pause between two looks at what is pending.
const pollEvery = 250 * time.Millisecond

// AwaitEmpty waits until nothing is pending.
func (p *Place) AwaitEmpty(ctx context.Context) error {
	again := time.NewTicker(pollEvery)
	defer again.Stop()
	for {
		pending, err := p.Pending(ctx)
		if err == nil && pending.Messages == 0 {
			if pending.Dead > 0 {
				return fmt.Errorf("%d messages are dead, and no handler has refused any", pending.Dead)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not caught up, %d messages are pending: %w", pending.Messages, context.Cause(ctx))
		case <-again.C:
		}
	}
}
