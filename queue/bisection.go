package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// BatchError is the error of a [BatchHandler] that knows which messages failed; all others are
// done. In a transaction everything is rolled back, and the others are handled again without the
// failed messages. The zero value is ready to use.
type BatchError struct {
	failed map[*message.Message]error
	order  []*message.Message
}

// Fail records that a message of the batch failed, and why. A nil error is ignored.
func (e *BatchError) Fail(msg *message.Message, err error) {
	if err == nil {
		return
	}
	if e.failed == nil {
		e.failed = map[*message.Message]error{}
	}
	if _, known := e.failed[msg]; !known {
		e.order = append(e.order, msg)
	}
	e.failed[msg] = spool.Recovered(func() error { return err })
}

// OrNil returns the error, or nil if no message failed.
func (e *BatchError) OrNil() error {
	if e == nil || len(e.failed) == 0 {
		return nil
	}
	return e
}

// Error lists up to ten of the messages that failed.
func (e *BatchError) Error() string {
	if e.OrNil() == nil {
		return "a BatchError that names no message: return its OrNil instead"
	}
	const most = 10
	var text strings.Builder
	fmt.Fprintf(&text, "%d of the batch's messages failed", len(e.order))
	for i, msg := range e.order {
		if i == most {
			text.WriteString(", …")
			break
		}
		fmt.Fprintf(&text, "; %s: %s", msg.UUID, e.failed[msg])
	}
	return text.String()
}

// bisection finds the messages of a batch that fail. It handles the batch in smaller and smaller
// parts.
type bisection struct {
	*progress
	batch    *Batch
	began    time.Time
	database *inbox.Inquiry // about the handler's last run
}

// handle handles a part of the batch, given by ascending indices. It postpones the part during an
// outage, or if the process no longer waits for the handler. last is set if no other call of its
// scheduled time comes after it.
func (b *bisection) handle(ctx context.Context, part []int, last bool) {
	part = b.withoutWaiting(part)
	queue := b.batch.queue
	if len(part) == 0 || !b.mayHand(ctx, queue, part) {
		return
	}
	if ctx.Err() == nil {
		if call, allowed := queue.circuits.Begin(queue.name); allowed {
			defer queue.circuits.End(queue.name, call)
			b.try(ctx, call, part, last)
			return
		}
	}
	b.set(part, spool.Outcome{Verdict: spool.Postpone})
}

func (b *bisection) try(ctx context.Context, call circuit.Call, part []int, last bool) {
	queue := b.batch.queue
	b.database = queue.core.Inquire(b.began)
	messages, err := b.batch.call(ctx, b.messages(part), last)
	if err == nil {
		b.done(call, part)
		return
	}
	if outcome, faultless := queue.faultless(ctx, call, b.messages(part), err); faultless {
		b.set(part, outcome)
		return
	}
	var partial *BatchError
	if errors.As(err, &partial) && partial.names(messages) {
		b.partial(ctx, call, part, messages, partial, last)
		return
	}
	if len(part) == 1 {
		b.end(ctx, call, part[0], err)
		return
	}
	queue.undecided(call, err)
	if errors.Is(err, spool.ErrRowLocked) { // each part with that row would wait for it
		for at := range part {
			b.handle(ctx, part[at:at+1], last && at == len(part)-1)
		}
		return
	}
	middle := len(part) / 2
	b.handle(ctx, part[:middle], false)
	b.handle(ctx, part[middle:], last)
}

// names reports whether the error names one of these messages. A handler may also have passed
// messages that it made itself.
func (e *BatchError) names(messages []*message.Message) bool {
	return e.OrNil() != nil && slices.ContainsFunc(messages, func(msg *message.Message) bool { return e.failed[msg] != nil })
}

// partial handles a [BatchError], in which the handler names the messages that failed. It processes
// the other messages first: a failed message may report an outage, and their success must not end
// that outage.
func (b *bisection) partial(ctx context.Context, call circuit.Call, part []int, messages []*message.Message, partial *BatchError, last bool) {
	inTx := b.batch.config.Worker.Transactional
	var rest, failed []int
	var errs []error
	for at, i := range part {
		err, named := partial.failed[messages[at]]
		switch {
		case named:
			failed, errs = append(failed, i), append(errs, err)
			b.wait(i)
		case inTx: // everything is rolled back, and later messages with the key of a failed message wait for it
			if b.isFree(i) {
				rest = append(rest, i)
			}
		default:
			rest = append(rest, i)
		}
	}
	switch {
	case len(rest) == 0:
	case inTx:
		if b.mayHand(ctx, b.batch.queue, rest) {
			b.try(ctx, call, rest, last)
		}
	default:
		b.done(call, rest)
	}
	for at, i := range failed {
		b.end(ctx, call, i, b.batch.queue.core.BlameOutside(ctx, b.database, errs[at]))
	}
}

func (b *bisection) done(call circuit.Call, part []int) {
	verdict := spool.Done
	if b.batch.config.Worker.Transactional {
		verdict = spool.Settled
	}
	b.batch.queue.succeeded(call, b.messages(part))
	b.set(part, spool.Outcome{Verdict: verdict})
}

// end records the error of a message.
func (b *bisection) end(ctx context.Context, call circuit.Call, i int, err error) {
	b.set([]int{i}, b.batch.queue.outcome(ctx, call, b.all[i], err))
}
