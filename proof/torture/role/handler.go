package role

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

const (
	// slowness is how long a slow handler takes: longer than a lease.
	slowness = Lease + time.Second
	// failures that a flaky message plans, in each consumer: fewer than the attempts.
	failures = 2
)

// errPlanned is a failure that the message asked for.
var errPlanned = errors.New("planned")

// apply does what the consumer has to do for a message, in the transaction that the context
// carries, and then, the trouble that the message plans.
func (p *process) apply(ctx context.Context, flow ledger.Flow, i ledger.Intent) error {
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return postbox.Permanent(fmt.Errorf("%s: %w", flow.Consumer, postbox.ErrNoTransaction))
	}
	effect := ledger.Effect{
		Consumer: flow.Consumer, Message: i.Message, Key: i.Key, Turn: i.Turn, Topic: i.Topic, Process: p.Name,
	}
	if err := effect.Write(ctx, tx); err != nil {
		return err
	}
	return p.trouble(ctx, tx, flow, i)
}

func (p *process) trouble(ctx context.Context, tx *sql.Tx, flow ledger.Flow, i ledger.Intent) error {
	switch i.Plan {
	case history.Slow:
		if !wait(ctx, slowness) {
			return ctx.Err()
		}
	case history.Poison:
		if !marks(p.Marks).has(healed(i.Message)) {
			return fmt.Errorf("poison: %w", errPlanned)
		}
	case history.Panics:
		if p.first(flow, i, 1) {
			panic(fmt.Errorf("panic: %w", errPlanned))
		}
	case history.Flaky:
		for n := range failures {
			if !p.first(flow, i, n) {
				continue
			}
			if n > 0 {
				return fmt.Errorf("flaky: %w", errPlanned)
			}
			_, err := tx.ExecContext(ctx, "SELECT no_such_function()") // aborts the transaction
			return errors.Join(errPlanned, err)
		}
	case history.Plain:
	}
	return nil
}

// first is true once in a run, for the n-th trouble of a message in a consumer.
func (p *process) first(flow ledger.Flow, i ledger.Intent, n int) bool {
	first, err := marks(p.Marks).leave(fmt.Sprintf("%s.%s.%d", i.Message, flow.Consumer, n))
	if err != nil {
		panic(err)
	}
	return first
}

// note runs a handler for a message and writes down that it began, and how it failed or, once the
// transaction of the context has committed, that it was applied.
func (p *process) note(ctx context.Context, flow ledger.Flow, i ledger.Intent, handler func() error) (err error) {
	p.history.Write(record(history.Saw, i, flow.Consumer))
	ended := false
	defer func() {
		if ended && err == nil {
			return
		}
		failed := record(history.Failed, i, flow.Consumer)
		reason := err
		if !ended {
			caught := recover()
			defer panic(caught)
			reason = fmt.Errorf("panic: %v", caught)
			if planned, ok := caught.(error); ok {
				reason = planned
			}
		}
		failed.Detail = reason.Error()
		failed.Outage = !errors.Is(reason, errPlanned)
		p.history.Write(failed)
	}()
	err = handler()
	ended = true
	if err == nil {
		p.noteAfterCommit(ctx, flow, i)
	}
	return err
}

func (p *process) noteAfterCommit(ctx context.Context, flow ledger.Flow, i ledger.Intent) {
	postbox.AfterCommit(ctx, func() { p.history.Write(record(history.Applied, i, flow.Consumer)) })
}

// handle is the handler of a flow whose messages come one by one, in a transaction.
func (p *process) handle(flow ledger.Flow) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		i, err := readMessage(msg)
		if err != nil {
			return nil, err
		}
		ctx := msg.Context()
		err = p.note(ctx, flow, i, func() error {
			if err := p.apply(ctx, flow, i); err != nil {
				return err
			}
			produced, err = p.emit(ctx, flow, i)
			return err
		})
		return produced, err
	}
}

// emit returns the message that follows, and notes the intent of it.
func (p *process) emit(ctx context.Context, flow ledger.Flow, cause ledger.Intent) ([]*message.Message, error) {
	if flow.Emits == "" {
		return nil, nil
	}
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return nil, postbox.ErrNoTransaction
	}
	follows := ledger.Intent{
		Message: postbox.NewMessageID(), Topic: flow.Emits, Plan: newPlan(), Emitter: flow.Consumer, Parent: cause.Message,
	}
	if cause.Key != "" {
		follows.Key = flow.Emits + " of " + cause.Key // a key of its own: handlers shall not wait for producers
	}
	p.history.Write(record(history.Intended, follows, flow.Consumer))
	if err := follows.Write(ctx, tx); err != nil {
		return nil, err
	}
	postbox.AfterCommit(ctx, func() { p.history.Write(record(history.Committed, follows, flow.Consumer)) })
	msg, err := newMessage(follows, 0)
	return []*message.Message{msg}, err
}
