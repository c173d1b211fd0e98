package crashpoints_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/queue"
)

const (
	// retention is how long everything is kept here.
	retention = time.Hour
	// purgeBatch lets each chore go in several steps.
	purgeBatch = 2
	// kept is how many rows of each kind are young, and as many and one are old.
	kept = 2
)

// litter leaves so many rows of each kind that is kept for a while.
func litter(ctx context.Context, p *process, what string, n int) error {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = newMessage(fmt.Sprint(what, i), "")
	}
	p.w.closed = true
	err := errors.Join(publish("orders", messages...)(ctx, p), p.forward(ctx, forwarder.Config{}))
	p.w.closed = false
	return errors.Join(err,
		deferred(messages...)(ctx, p),
		processing{config: queue.Config{History: retention}}.life(ctx, p),
	)
}

// litterAll leaves old rows and young ones.
func litterAll(ctx context.Context, p *process) error {
	if err := litter(ctx, p, "old", kept+1); err != nil {
		return err
	}
	for _, age := range ages {
		if _, err := p.db.ExecContext(ctx, p.w.database.Bind(age), 2*retention.Microseconds()); err != nil {
			return err
		}
	}
	return litter(ctx, p, "young", kept)
}

// littered counts what is kept.
var littered = []string{countClaims, countFailures, countLetters, countHistory}

// purge cleans up until nothing old is left.
func purge(ctx context.Context, p *process) error {
	statements, err := spool.StatementsIn(p.w.database.Postbox())
	if err != nil {
		return err
	}
	cleaner := cleanup.New(p.db, statements, postbox.NewMessageID(), cleanup.Config{
		Interval: pollMin, Lease: time.Minute, Batch: purgeBatch,
		DeadLetters: retention, Failures: retention, Claims: retention, History: true,
	}, watermill.NopLogger{})
	return p.until(ctx, func(ctx context.Context) error {
		cleaner.Run(ctx)
		return nil
	}, func(ctx context.Context) (bool, error) {
		for _, query := range littered {
			var rows int
			if err := p.w.database.DB.QueryRowContext(ctx, query).Scan(&rows); err != nil {
				return false, ignoreEnd(ctx, err)
			}
			if rows > kept {
				return false, nil
			}
		}
		return true, nil
	})
}

// Also covers F5 and F18.
func TestCrash_G8_while_purging(t *testing.T) {
	t.Parallel()
	each(t, flow{
		name: "purge", least: 30, prepare: litterAll, life: purge,
		check: func(c *check) {
			for _, query := range littered {
				c.require().Equal(kept, c.count(query), query)
			}
			for _, letter := range c.letters() {
				c.require().Contains(letter.MessageID, "young")
			}
		},
	})
}
