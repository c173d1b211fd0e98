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

// retainedWatch measures the log that the server keeps for a slot. Above the limit, if there is one, it ends the
// session, and a temporary slot with it. It also ends a session that reads a log which lacks what is needed. Other errors
// do no harm: the next look follows soon.
type retainedWatch struct {
	group    *group
	slot     string
	interval time.Duration
	most     int64                           // not positive: no limit
	lacks    func(ctx context.Context) error // returns a setupError if the log lacks something; may be nil
	give     func(cause error)
}

// begin watches until ctx ends. The function that it returns waits for the end of the watch.
func (w retainedWatch) begin(ctx context.Context) (wait func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run(ctx)
	}()
	return func() { <-ended }
}

func (w retainedWatch) run(ctx context.Context) {
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			w.group.each(func(o tail.Outbox) { o.Meter.LogRetained(0) })
			return
		case <-ticker.C:
		}
		outbox, ok := w.group.outbox()
		if !ok {
			continue
		}
		retained, err := retainedFor(ctx, outbox, w.slot)
		if err != nil {
			outbox.Logger.Debug("Postbox could not read how much log its slot keeps: "+err.Error(), nil)
			continue
		}
		w.group.each(func(o tail.Outbox) { o.Meter.LogRetained(retained) })
		if w.most > 0 && retained > w.most {
			w.give(fmt.Errorf("%w (%d bytes, and the limit is %d)", errRetained, retained, w.most))
			return
		}
		if err := w.lacking(ctx); err != nil {
			w.give(err)
			return
		}
	}
}

// lacking returns what the log lacks.
func (w retainedWatch) lacking(ctx context.Context) error {
	if w.lacks == nil {
		return nil
	}
	err := w.lacks(ctx)
	if wrong := (*setupError)(nil); errors.As(err, &wrong) {
		return err
	}
	return nil
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
