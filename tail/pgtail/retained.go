package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// retainedInterval is the pause between two looks at how much log the server keeps for the slot.
const retainedInterval = 5 * time.Second

// errRetained is the reason for giving a slot up.
var errRetained = errors.New("the server keeps more log for this process than MaxRetained allows, so the slot was given up: look for transactions that have been open for long, which it waits for")

// watchRetained measures the log that the server keeps for the slot. Above the limit it ends the session, and the slot
// with it. An error does no harm: the next look follows soon.
func (r *receiver) watchRetained(ctx context.Context, slot string, give func(cause error)) {
	ticker := time.NewTicker(r.tail.retainedInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			r.tail.measure(func(o tail.Outbox) { o.Meter.LogRetained(0) })
			return
		case <-ticker.C:
		}
		outbox, ok := r.tail.outbox()
		if !ok {
			continue
		}
		retained, err := retainedFor(ctx, outbox, slot)
		if err != nil {
			outbox.Logger.Debug("Postbox could not read how much log its slot keeps: "+err.Error(), nil)
			continue
		}
		r.tail.measure(func(o tail.Outbox) { o.Meter.LogRetained(retained) })
		if most := r.tail.config.MaxRetained; most > 0 && retained > most {
			give(fmt.Errorf("%w (%d bytes, and the limit is %d)", errRetained, retained, most))
			return
		}
	}
}

// retainedFor returns the bytes of log that the server keeps for a slot, 0 if there is no such slot.
func retainedFor(ctx context.Context, outbox tail.Outbox, slot string) (retained int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = outbox.DB.QueryRowContext(ctx, outbox.Statements.Retained, slot).Scan(&retained)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return retained, err
}
