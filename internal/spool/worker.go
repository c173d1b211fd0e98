package spool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	postbox "github.com/postbox-go/watermill-postbox"
)

// work handles batches until the scheduler stops.
func (d *Drainer) work(ctx context.Context) {
	for batch := d.scheduler.take(); batch != nil; batch = d.scheduler.take() {
		d.workOn(ctx, batch)
	}
}

// workOn handles a batch. A handler that ends its goroutine ends the worker with it, so another worker takes its place: a goroutine for each
// batch would cost a forwarder a third of its rate.
func (d *Drainer) workOn(ctx context.Context, batch []*entry) {
	outcomes := make([]Outcome, len(batch))
	fill(outcomes, Outcome{Verdict: Postpone}) // until somebody says more, also in a panic
	ended := true
	defer func() {
		d.stay(outcomes)
		d.unload(batch)
		d.scheduler.finish(batch, outcomes)
		if ended {
			d.workers.Go(func() { d.work(ctx) })
		}
	}()
	d.begin(ctx, batch, outcomes)
	ended = false
}

// unload lets go of large payloads: a settlement that takes long has up to two pages of messages wait for it.
func (d *Drainer) unload(batch []*entry) {
	for _, e := range batch {
		if m := e.message; e.bytes > 0 || m.size > d.configured.InlineBytes {
			m.unload()
		}
	}
}

// stay makes messages that would be dead remain the heads of their keys, where that is the policy.
func (d *Drainer) stay(outcomes []Outcome) {
	if d.configured.Head != HeadPark {
		return
	}
	for i := range outcomes {
		if outcomes[i].Verdict == Dead {
			outcomes[i].Verdict, outcomes[i].final = Retry, true
		}
	}
}

// begin handles a batch once it may be.
func (d *Drainer) begin(ctx context.Context, batch []*entry, outcomes []Outcome) {
	if d.configured.Begin != nil {
		end, err := d.configured.Begin(ctx)
		if err != nil {
			fill(outcomes, Outcome{Verdict: Postpone, Err: err})
			return
		}
		defer end()
	}
	d.handle(ctx, batch, outcomes)
}

func fill(outcomes []Outcome, with Outcome) {
	for i := range outcomes {
		outcomes[i] = with
	}
}

// handle gives the handler what is fit for it. A message that cannot be decoded is dead at once, with its stored
// form kept; one that is gone was settled by whoever took the lane.
func (d *Drainer) handle(ctx context.Context, batch []*entry, outcomes []Outcome) {
	fit := make([]*Message, 0, len(batch))
	closed := map[int64]bool{} // keys of which a message is dead, which is not written yet
	for i, e := range batch {
		if e.message.HasKey && closed[e.message.KeyHash] {
			outcomes[i] = Outcome{Verdict: Postpone}
			continue
		}
		outcome, is := d.prepare(ctx, e.message)
		if is {
			fit = append(fit, e.message)
			continue
		}
		outcomes[i] = outcome
		closed[e.message.KeyHash] = !outcome.through()
		if outcome.Verdict == Postpone && !outcome.locked { // the rest may be of the same key: all wait
			fill(outcomes[i+1:], Outcome{Verdict: Postpone})
			break
		}
	}
	switch {
	case len(fit) == 0:
	case len(fit) == len(batch):
		d.protect(ctx, fit, outcomes)
	default:
		handled := make([]Outcome, len(fit))
		defer func() {
			for i, e := range batch {
				if at := slices.Index(fit, e.message); at >= 0 {
					outcomes[i] = handled[at]
				}
			}
		}()
		d.protect(ctx, fit, handled)
	}
}

// prepare counts the start of a suspect before it loads the payload: a large one may be what brings the process down.
func (d *Drainer) prepare(ctx context.Context, m *Message) (outcome Outcome, fit bool) {
	if m.doomed == nil {
		if counted, err := d.countStart(ctx, m); !counted {
			locked := errors.Is(err, ErrRowLocked)
			return Outcome{Verdict: Postpone, Err: err, locked: locked, uncounted: !locked}, false
		}
	}
	if !m.loaded {
		found, err := d.loadPayload(ctx, d.db, m)
		if err != nil {
			return Outcome{Verdict: Postpone, Err: err}, false
		}
		if !found {
			return Outcome{Verdict: Done}, false
		}
	}
	if m.broken != nil {
		return Outcome{Verdict: Dead, Err: m.broken}, false
	}
	if m.doomed != nil {
		return Outcome{Verdict: Dead, Err: m.doomed}, false
	}
	return Outcome{}, true
}

// protect runs the handler. Where that panics or ends its goroutine, the batch has failed.
func (d *Drainer) protect(ctx context.Context, messages []*Message, outcomes []Outcome) {
	fill(outcomes, Outcome{Verdict: Retry, Err: errGoexit}) // until it returns
	err := Recovered(func() error {
		handled := d.handler.Handle(ctx, messages)
		if len(handled) != len(messages) {
			return fmt.Errorf("the handler returned %d outcomes for %d messages", len(handled), len(messages))
		}
		copy(outcomes, handled)
		return nil
	})
	if err != nil {
		fill(outcomes, Outcome{Verdict: Retry, Err: err})
	}
}

// OutcomeOf turns a handler's error into an outcome, by what the error says of itself: [postbox.Permanent] and
// [postbox.RetryAfter] are obeyed, anything else is retried, nil is done.
func OutcomeOf(err error) Outcome {
	var permanent *postbox.PermanentError
	var later *postbox.RetryAfterError
	switch {
	case err == nil:
		return Outcome{Verdict: Done}
	case errors.As(err, &permanent):
		return Outcome{Verdict: Dead, Err: err}
	case errors.As(err, &later):
		return Outcome{Verdict: Retry, Err: err, After: later.After}
	default:
		return Outcome{Verdict: Retry, Err: err}
	}
}
