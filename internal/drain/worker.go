package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// workers is the component of the goroutines that call the handler. Calls that hang are in hung.go.
type workers struct {
	*core
	handler    Handler
	crashGuard *crashGuard
	handling   context.Context //nolint:containedctx // that of handlers, which a close ends if they take too long
	running    sync.WaitGroup
	started    int
}

// resize sets the number of workers to that of the configuration. Surplus workers wait.
func (w *workers) resize() {
	w.scheduler.SetWorkers(w.config.Workers)
	for ; w.started < w.config.Workers; w.started++ {
		w.running.Go(func() { w.work(w.handling) })
	}
}

// work handles batches until the scheduler stops.
func (w *workers) work(ctx context.Context) {
	for batch := w.scheduler.Take(); batch != nil; batch = w.scheduler.Take() {
		outcomes := make([]spool.Outcome, len(batch))
		w.begin(ctx, batch, outcomes)
		w.park(outcomes)
		w.dropPayloads(batch)
		w.scheduler.Finish(batch, outcomes)
	}
}

// dropPayloads releases large payloads, because up to two pages of messages wait for a settlement
// that takes long.
func (w *workers) dropPayloads(batch []*schedule.Entry) {
	for _, e := range batch {
		if m := e.Message; e.Bytes > 0 || m.Size > w.configured.InlineBytes {
			m.Unload()
		}
	}
}

// park applies the policy HeadPark: messages that would be dead remain the heads of their keys.
func (w *workers) park(outcomes []spool.Outcome) {
	if w.configured.Head != HeadPark {
		return
	}
	for i := range outcomes {
		if outcomes[i].Verdict == spool.Dead {
			outcomes[i].Verdict, outcomes[i].Final = spool.Retry, true
		}
	}
}

// begin waits until a batch may be handled, and handles it.
func (w *workers) begin(ctx context.Context, batch []*schedule.Entry, outcomes []spool.Outcome) {
	if w.configured.Begin != nil {
		end, err := w.configured.Begin(ctx)
		if err != nil {
			fill(outcomes, spool.Outcome{Verdict: spool.Postpone, Err: err})
			return
		}
		defer end()
	}
	w.handle(ctx, batch, outcomes)
}

func fill(outcomes []spool.Outcome, with spool.Outcome) {
	for i := range outcomes {
		outcomes[i] = with
	}
}

// handle passes the fit messages to the handler. A message that cannot be decoded is dead
// immediately, with its stored form kept. A message that is gone was settled by the process that
// took the lane.
func (w *workers) handle(ctx context.Context, batch []*schedule.Entry, outcomes []spool.Outcome) {
	fit := make([]*spool.Message, 0, len(batch))
	uncounted := w.crashGuard.countStarts(ctx, batch)
	closed := spool.ClosedKeys{} // with a message that is neither handed out nor done
	for i, e := range batch {
		if closed.Has(e.Message) {
			outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
			continue
		}
		outcome, is := w.prepare(ctx, e.Message, uncounted[e.Message])
		if is {
			fit = append(fit, e.Message)
			continue
		}
		outcomes[i] = outcome
		if !outcome.Through() {
			closed.Close(e.Message)
		}
		if outcome.Verdict == spool.Postpone && !outcome.Locked { // the later messages may have the same key, so all of them wait
			fill(outcomes[i+1:], spool.Outcome{Verdict: spool.Postpone})
			break
		}
	}
	switch {
	case len(fit) == 0:
	case len(fit) == len(batch):
		w.protect(ctx, fit, outcomes)
	default:
		handled := make([]spool.Outcome, len(fit))
		w.protect(ctx, fit, handled)
		for i, e := range batch {
			if at := slices.Index(fit, e.Message); at >= 0 {
				outcomes[i] = handled[at]
			}
		}
	}
}

// prepare needs the start of a suspect counted before it loads the payload, because a large payload
// may be the reason of the crash.
func (w *workers) prepare(ctx context.Context, m *spool.Message, uncounted error) (outcome spool.Outcome, fit bool) {
	if uncounted != nil {
		locked := errors.Is(uncounted, spool.ErrRowLocked)
		return spool.Outcome{Verdict: spool.Postpone, Err: uncounted, Locked: locked, Uncounted: !locked}, false
	}
	m.Counted = m.Doomed == nil
	if !m.Loaded {
		found, err := w.loadPayload(ctx, w.db, m)
		if err != nil {
			m.Counted = false // it is exposed still
			return spool.Outcome{Verdict: spool.Postpone, Err: err}, false
		}
		if !found {
			return spool.Outcome{Verdict: spool.Done}, false
		}
	}
	if m.Broken != nil {
		return spool.Outcome{Verdict: spool.Dead, Err: m.Broken}, false
	}
	if m.Doomed != nil {
		return spool.Outcome{Verdict: spool.Dead, Err: m.Doomed}, false
	}
	return spool.Outcome{}, true
}

// protect runs the handler. If the handler panics, the batch has failed.
func (w *workers) protect(ctx context.Context, messages []*spool.Message, outcomes []spool.Outcome) {
	began := time.Now()
	for _, m := range messages {
		m.Began = began
	}
	err := spool.Recovered(func() error {
		handled := w.handler.Handle(ctx, messages)
		if len(handled) != len(messages) {
			return fmt.Errorf("the handler returned %d outcomes for %d messages", len(handled), len(messages))
		}
		copy(outcomes, handled)
		return nil
	})
	if err != nil {
		fill(outcomes, spool.Outcome{Verdict: spool.Retry, Err: err})
	}
}

// OutcomeOf translates a handler's error into an outcome. [postbox.Permanent] and
// [postbox.RetryAfter] are applied, any other error is retried, and nil is done.
func OutcomeOf(err error) spool.Outcome {
	var later *verdict.RetryAfterError
	switch {
	case err == nil:
		return spool.Outcome{Verdict: spool.Done}
	case verdict.IsPermanent(err):
		return spool.Outcome{Verdict: spool.Dead, Err: err}
	case errors.As(err, &later):
		return spool.Outcome{Verdict: spool.Retry, Err: err, After: later.After}
	default:
		return spool.Outcome{Verdict: spool.Retry, Err: err}
	}
}
