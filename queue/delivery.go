package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/report"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// delivery is the handler that the drainer of the queue calls: it hands messages out and waits for
// their acks.
type delivery struct {
	queue    *queue
	messages chan *message.Message
	stopping <-chan struct{} // closed when handlers take no more messages
	unheard  sync.Once       // logs once that the queue does not hear the handler's errors
}

func newDelivery(ctx context.Context, core *inbox.Core, name string, config Config, logger watermill.LoggerAdapter) *delivery {
	d := &delivery{messages: make(chan *message.Message), stopping: ctx.Done()}
	d.queue = newQueue(core, name, config, logger)
	d.queue.drain(d, config.drainer(core))
	return d
}

// Excluded lists the topic of the queue while there is an outage.
func (d *delivery) Excluded() []string { return d.queue.excluded() }

// Handle delivers a batch. Several messages are delivered together only if they share a
// transaction.
func (d *delivery) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	p := newProgress(batch)
	part := p.indices()
	if len(batch) > 1 {
		part = d.together(ctx, p, part)
	}
	for _, i := range part {
		if p.isFree(i) && p.mayHand(ctx, d.queue, []int{i}) {
			p.set([]int{i}, d.one(ctx, batch[i]))
		}
	}
	return p.outcomes
}

// together delivers a part of a batch in one transaction. It returns the messages that have no
// outcome yet: the handler failed, and it is not known for which of them.
func (d *delivery) together(ctx context.Context, p *progress, part []int) (left []int) {
	if len(part) == 0 || !p.mayHand(ctx, d.queue, part) {
		return nil
	}
	call, allowed := d.queue.circuits.Begin(d.queue.name)
	defer d.queue.circuits.End(d.queue.name, call)
	if !allowed {
		p.set(part, spool.Outcome{Verdict: spool.Postpone})
		return nil
	}
	err := d.transact(ctx, p.messages(part))
	if err == nil {
		d.queue.succeeded(call, p.messages(part))
		p.set(part, spool.Outcome{Verdict: spool.Settled})
		return nil
	}
	if outcome, faultless := d.queue.faultless(ctx, call, p.messages(part), err); faultless {
		p.set(part, outcome)
		return nil
	}
	d.queue.undecided(call, err)
	return part
}

// one delivers one message. With Transactional the message has a transaction of its own.
func (d *delivery) one(ctx context.Context, stored *spool.Message) spool.Outcome {
	call, allowed := d.queue.circuits.Begin(d.queue.name)
	defer d.queue.circuits.End(d.queue.name, call)
	if !allowed {
		return spool.Outcome{Verdict: spool.Postpone}
	}
	single, verdict := []*spool.Message{stored}, spool.Settled
	var err error
	if d.queue.config.Transactional {
		err = d.transact(ctx, single)
	} else {
		verdict = spool.Done
		err = d.queue.core.WithoutTransaction(ctx, func() error { return d.hand(ctx, ctx, stored) })
	}
	if err != nil {
		return d.queue.outcome(ctx, call, stored, err)
	}
	d.queue.succeeded(call, single)
	return spool.Outcome{Verdict: verdict}
}

// transact delivers messages in one transaction. Its last statement removes the messages: that
// marks them as done, and protects against another process that handles them too.
func (d *delivery) transact(ctx context.Context, batch []*spool.Message) error {
	return d.queue.transact(ctx, batch, func(inTx context.Context, intact func() error) error {
		for i, stored := range batch {
			if i > 0 { // writes after the end of the transaction would be committed immediately
				if err := intact(); err != nil {
					return err
				}
			}
			if err := d.hand(ctx, inTx, stored); err != nil {
				return err
			}
		}
		return nil
	})
}

// transact runs handle in a transaction that removes the messages at its end. It repeats a
// transaction that conflicts with another.
func (q *queue) transact(
	ctx context.Context, batch []*spool.Message, handle func(inTx context.Context, intact func() error) error,
) error {
	var removing error
	w := inbox.Work{
		Handle: handle, NoticesEnd: spool.NoticesEnd(batch),
		Settle: func(inTx context.Context, tx *sql.Tx) error {
			removing = spool.Settle(inTx, tx, q.core.InTx(), batch)
			return removing
		},
	}
	if q.core.Slots.Alone() {
		w.Begin = func(inTx context.Context, tx *sql.Tx) error { return spool.Hold(inTx, tx, batch) }
	}
	return q.core.UntilNoConflict(ctx, func() error {
		removing = nil
		err := q.core.Transact(ctx, ctx, w)
		if dialect.WaitedForLock(removing) { // on MariaDB that is a conflict, which would run the same messages again
			err = fmt.Errorf("inbox: settle: %w", spool.ErrRowLocked)
		}
		return err
	})
}

// hand gives a message to the reader of the channel, with a context derived from inner, and waits
// for its ack or nack. It returns the handler's error unchanged. In a transaction, a handler that
// has reported an error has failed, even if it acks the message afterwards: its writes must not be
// committed.
func (d *delivery) hand(ctx, inner context.Context, stored *spool.Message) error {
	inner, reported := report.New(inner)
	inner, cancel := context.WithCancel(inner) // Watermill: a message's context ends with its ack
	defer cancel()
	msg, err := d.offer(inner, stored)
	if err != nil {
		return err
	}
	select {
	case <-msg.Acked():
		return txscope.From(inner).Failure()
	case <-msg.Nacked():
		d.checkHeard(reported)
		return reported.Cause()
	case <-ctx.Done():
		return inbox.ErrStopping
	}
}

// checkHeard logs once that a message was nacked while no middleware reports the handler's errors
// to the queue.
func (d *delivery) checkHeard(reported *report.Report) {
	if !reported.Heard() {
		d.unheard.Do(func() { d.queue.logger.Error("Postbox does not receive the errors of a handler", errUnheard, nil) })
	}
}

var errUnheard = errors.New("a handler of this queue has nacked a message, and a Nack carries no error, so postbox.Permanent and postbox.RetryAfter have no effect, " +
	"and the record of the failure does not say why: call handler.AddMiddleware(middleware.Process), or add the handler by package router; " +
	"if you read the subscriber's channel yourself, call queue.Fail before the Nack")

// offer waits until a handler takes the message.
func (d *delivery) offer(ctx context.Context, stored *spool.Message) (*message.Message, error) {
	msg := d.queue.message(ctx, stored)
	select {
	case d.messages <- msg:
		return msg, nil
	case <-d.stopping:
		return nil, inbox.ErrStopping
	}
}
