package spool

import (
	"context"
	"errors"
	"fmt"

	postbox "github.com/postbox-go/watermill-postbox"
)

// work handles batches until the scheduler stops.
func (d *Drainer) work(ctx context.Context) {
	for {
		batch := d.scheduler.take()
		if batch == nil {
			return
		}
		outcomes := d.stay(d.begin(ctx, batch))
		d.unload(batch)
		d.scheduler.finish(batch, outcomes)
	}
}

// unload lets go of large payloads: a settlement that takes long has up to two pages of messages wait for it.
func (d *Drainer) unload(batch []*entry) {
	for _, e := range batch {
		if m := e.message; e.bytes > 0 || m.size > d.configured.InlineBytes {
			m.Payload, m.Metadata, m.loaded = nil, nil, false
		}
	}
}

// stay makes messages that would be dead remain the heads of their keys, where that is the policy.
func (d *Drainer) stay(outcomes []Outcome) []Outcome {
	if d.configured.Head != HeadPark {
		return outcomes
	}
	for i := range outcomes {
		if outcomes[i].Verdict == Dead {
			outcomes[i].Verdict, outcomes[i].final = Retry, true
		}
	}
	return outcomes
}

// begin handles a batch once it may be.
func (d *Drainer) begin(ctx context.Context, batch []*entry) []Outcome {
	if d.configured.Begin == nil {
		return d.handle(ctx, batch)
	}
	end, err := d.configured.Begin(ctx)
	if err != nil {
		outcomes := make([]Outcome, len(batch))
		for i := range outcomes {
			outcomes[i] = Outcome{Verdict: Postpone, Err: err}
		}
		return outcomes
	}
	defer end()
	return d.handle(ctx, batch)
}

// handle gives the handler what is fit for it. A message that cannot be decoded is dead at once, with its stored
// form kept; one that is gone was settled by whoever took the lane.
func (d *Drainer) handle(ctx context.Context, batch []*entry) []Outcome {
	messages := make([]*Message, 0, len(batch))
	unfit := map[int]Outcome{}
	closed := map[int64]bool{} // keys of which a message is dead, which is not written yet
	for i, e := range batch {
		if e.message.HasKey && closed[e.message.KeyHash] {
			unfit[i] = Outcome{Verdict: Postpone}
			continue
		}
		outcome, fit := d.prepare(ctx, e.message)
		if fit {
			messages = append(messages, e.message)
			continue
		}
		unfit[i] = outcome
		closed[e.message.KeyHash] = !outcome.through()
		if outcome.Verdict == Postpone && !outcome.locked { // the rest may be of the same key: all wait
			for j := i; j < len(batch); j++ {
				unfit[j] = outcome
			}
			break
		}
	}
	if len(unfit) == 0 {
		return d.protect(ctx, messages)
	}
	var handled []Outcome
	if len(messages) > 0 {
		handled = d.protect(ctx, messages)
	}
	outcomes := make([]Outcome, len(batch))
	for i := range batch {
		if outcome, is := unfit[i]; is {
			outcomes[i] = outcome
		} else {
			outcomes[i], handled = handled[0], handled[1:]
		}
	}
	return outcomes
}

// prepare counts the start of a suspect before it loads the payload: a large one may be what brings the process down.
func (d *Drainer) prepare(ctx context.Context, m *Message) (outcome Outcome, fit bool) {
	if m.doomed == nil {
		if counted, err := d.countStart(ctx, m); !counted {
			return Outcome{Verdict: Postpone, Err: err, locked: errors.Is(err, ErrRowLocked)}, false
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
func (d *Drainer) protect(ctx context.Context, messages []*Message) []Outcome {
	var outcomes []Outcome
	err := Protect(func() error {
		if outcomes = d.handler.Handle(ctx, messages); len(outcomes) != len(messages) {
			panic(fmt.Sprintf("handler returned %d outcomes for %d messages", len(outcomes), len(messages)))
		}
		return nil
	})
	if err == nil {
		return outcomes
	}
	outcomes = make([]Outcome, len(messages))
	for i := range outcomes {
		outcomes[i] = Outcome{Verdict: Retry, Err: err}
	}
	return outcomes
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
