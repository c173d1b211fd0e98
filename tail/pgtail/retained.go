package pgtail

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

const (
	// retainedInterval is the pause between two looks at how much log the server keeps for the
	// slot, and at the publication.
	retainedInterval = 5 * time.Second
	// retainedRest is how many of these pauses there are between two looks while the log hardly
	// grows, so that an idle forwarder costs nearly nothing. Then the looks are at one of the two
	// in turn. The server cannot keep much more than at the last look.
	retainedRest = 12
	// retainedGrowth is how many bytes of log are hardly any.
	retainedGrowth = 1 << 20
)

// errRetained is the reason for giving a slot up.
var errRetained = errors.New("the server keeps more log for this process than MaxRetained allows, so the slot was given up: look for transactions that have been open for long, which it waits for")

// retainedWatch measures the log that the server keeps for a slot. Above the limit, if there is
// one, it ends the session, and a temporary slot with it. It also ends a session that reads a log
// which lacks what is needed. Other errors do no harm: the next look follows soon.
type retainedWatch struct {
	group    *group
	slot     string
	interval time.Duration
	most     int64                           // not positive: no limit
	lacks    func(ctx context.Context) error // returns a setupError if the log lacks something
	give     func(cause error)
	reached  *atomic.Uint64 // the position in the log up to which the server has sent everything
}

// looked is what a watch knows of its last look.
type looked struct {
	rests   int // ticks since then
	turn    int // number of looks
	reached uint64
	missed  int64
}

// due reports whether it is time to look, and at what.
func (w retainedWatch) due(last *looked) (retained, publication bool) {
	reached, missed := w.reached.Load(), int64(0)
	w.group.each(func(o tail.Outbox) { missed += o.Feed.Missed() })
	last.rests++
	busy := reached == 0 || reached-last.reached >= retainedGrowth || missed != last.missed
	if !busy && last.rests < retainedRest {
		return false, false
	}
	*last = looked{turn: last.turn + 1, reached: reached, missed: missed}
	return busy || last.turn%2 == 1, busy || last.turn%2 == 0
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
	last := looked{rests: retainedRest} // the first tick looks
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
		retained, publication := w.due(&last)
		var err error
		if retained {
			err = w.look(ctx, outbox)
		}
		if err == nil && publication {
			err = w.lacking(ctx)
		}
		if err != nil {
			w.give(err)
			return
		}
	}
}

// look measures the log that the server keeps. It returns an error if that is too much.
func (w retainedWatch) look(ctx context.Context, outbox tail.Outbox) error {
	retained, err := retainedFor(ctx, outbox, w.slot)
	if err != nil {
		outbox.Logger.Debug("Postbox could not read how much log its slot keeps: "+err.Error(), nil)
		return nil //nolint:nilerr // it was logged, and the next look follows
	}
	w.group.each(func(o tail.Outbox) { o.Meter.LogRetained(retained) })
	if w.most > 0 && retained > w.most {
		return fmt.Errorf("%w (%d bytes, and the limit is %d)", errRetained, retained, w.most)
	}
	return nil
}

// lacking returns what the log lacks.
func (w retainedWatch) lacking(ctx context.Context) error {
	err := w.lacks(ctx)
	if wrong := (*setupError)(nil); errors.As(err, &wrong) || errors.Is(err, errOtherServer) {
		return err
	}
	return nil
}

// retainedFor returns the bytes of log that the server keeps for a slot, 0 if there is no such
// slot.
func retainedFor(ctx context.Context, outbox tail.Outbox, slot string) (retained int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	found, err := readSlot(ctx, outbox.DB, outbox.Statements, slot)
	return found.Retained, err
}
