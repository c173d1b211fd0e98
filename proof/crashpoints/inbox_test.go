package crashpoints_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

const (
	consumer = "ledger"
	receipts = "receipts"
)

func (p *process) store() (*inboxstore.Store, error) {
	return inboxstore.New(p.w.database.On(p.db), inboxstore.Config{
		ClaimRetention: -1, DeadLetterRetention: -1,
	}, nil)
}

// receipt is what a handler emits.
func receipt(id string) *message.Message { return newMessage("receipt of "+id, "") }

// consume gives the handler what the broker delivers, until nothing is left.
func consume(ctx context.Context, p *process) error {
	store, err := p.store()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	outbox, err := p.outbox()
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Consumer: consumer, Topic: "payments", Outbox: outbox, PublishTopic: receipts, Retry: retry,
	}, nil)
	if err != nil {
		return err
	}
	handler := func(msg *message.Message) ([]*message.Message, error) {
		if err := p.effect(msg.Context(), msg.UUID); err != nil {
			return nil, err
		}
		if err := p.handle(msg.UUID); err != nil {
			return nil, err
		}
		return []*message.Message{receipt(msg.UUID)}, nil
	}
	return p.redeliver(ctx, func(msg *message.Message) error {
		_, err := inbox.Process(ctx, msg, handler)
		return err
	})
}

// rounds is how often the broker delivers again what was not acked.
const rounds = 10

// redeliver delivers each message until it is acked.
func (p *process) redeliver(ctx context.Context, deliver func(msg *message.Message) error) error {
	var last error
	for range rounds {
		left := p.w.deliveries()
		if len(left) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		for _, msg := range left {
			last = deliver(msg)
			if last == nil {
				last = p.ack(msg.UUID)
			}
		}
	}
	return fmt.Errorf("the broker is tired of delivering again: %w", last)
}

// delivering returns what gives the broker something to deliver.
func delivering(messages ...*message.Message) func(ctx context.Context, p *process) error {
	return func(_ context.Context, p *process) error {
		p.w.deliver(messages...)
		return nil
	}
}

// Also covers F5, F6 and F26.
func TestCrash_G4_while_an_inbox_handles(t *testing.T) {
	t.Parallel()
	one, two := newMessage("one", ""), newMessage("two", "")
	each(t, flow{
		name: "inbox", least: 20, lingers: true, life: consume,
		prepare: delivering(one, two, one, two),
		check: func(c *check) {
			c.effects("one", "two")
			c.runs(map[string]int{"one": 1, "two": 1}, 1)
			c.pending(outboxName, "receipt of one", "receipt of two")
			c.require().Equal(2, c.count(countClaims))
			c.require().Zero(c.count(countFailures))
			c.dead()
		},
	}, flow{
		name: "inbox with failures", least: 40, lingers: true, life: consume,
		prepare: delivering(newMessage(bad, ""), newMessage(flaky, ""), newMessage(fatal, ""), newMessage(bad, "")),
		check: func(c *check) {
			c.effects(flaky)
			c.runs(map[string]int{bad: attempts, flaky: 2, fatal: 1}, 1)
			c.pending(outboxName, "receipt of "+flaky)
			c.require().Equal(3, c.count(countClaims), "no claim is left over, and none is missing")
			c.dead(bad, fatal)
		},
	}, flow{
		name: "inbox in a transaction of others", least: 20, life: consumeInTx,
		prepare: delivering(one, newMessage(flaky, ""), one),
		check: func(c *check) {
			c.effects("one", "before one", "after one", flaky, "before "+flaky, "after "+flaky)
			c.pending(outboxName, "receipt of one", "receipt of "+flaky)
			c.require().Equal(2, c.count(countClaims))
			c.dead()
		},
	})
}

// consumeInTx claims and handles in transactions that somebody else begins and ends, and writes in
// too.
func consumeInTx(ctx context.Context, p *process) error {
	store, err := p.store()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	outbox, err := p.outbox()
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	return p.redeliver(ctx, func(msg *message.Message) error {
		key := inboxstore.Key{Consumer: consumer, Topic: "payments", MessageID: msg.UUID}
		var failure error
		err := postbox.InTx(ctx, p.db, func(ctx context.Context, _ *sql.Tx) error {
			fresh, err := store.Once(ctx, key, func(ctx context.Context) error {
				if err := p.effect(ctx, "before "+msg.UUID); err != nil {
					return err
				}
				if err := p.handle(msg.UUID); err != nil {
					return err
				}
				out := receipt(msg.UUID)
				out.SetContext(ctx)
				return errors.Join(outbox.Publish(receipts, out), p.effect(ctx, "after "+msg.UUID))
			})
			if errors.Is(err, errRefused) { // the transaction goes on without it
				failure = err
				_, err = store.RecordFailure(ctx, key, err)
				return err
			}
			if err == nil && fresh {
				err = p.effect(ctx, msg.UUID)
			}
			return err
		})
		return errors.Join(err, failure)
	})
}
