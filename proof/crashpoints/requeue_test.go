package crashpoints_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

func (p *process) operator() (*admin.Admin, error) {
	return admin.New(p.w.database.On(p.db), admin.Config{AllowEdit: true}, nil)
}

// insist repeats what an operator does until it is done, or nothing is left to do.
func insist(ctx context.Context, do func() error) error {
	var err error
	for range rounds {
		err = do()
		switch {
		case err == nil, errors.Is(err, admin.ErrNotFound), errors.Is(err, admin.ErrRefused):
			return nil
		case ctx.Err() != nil:
			return err
		}
	}
	return fmt.Errorf("the operator gives up: %w", err)
}

// ofInbox is the message that died in an inbox.
const ofInbox = "of an inbox"

// die lets messages of an outbox and of an inbox die, and the broker then take everything.
func die(ctx context.Context, p *process) error {
	died := func(id string) *message.Message { return newMessage(id, "k") }
	err := errors.Join(
		publish("orders", died("requeued"), died("edited"), died("resolved"), died("deleted"))(ctx, p),
		publish("more", died("all 1"), died("all 2"))(ctx, p),
	)
	if err != nil {
		return err
	}
	p.w.closed = true
	if err := p.forward(ctx, forwarder.Config{}); err != nil {
		return err
	}
	p.w.closed = false
	store, err := p.store()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	return store.Bury(ctx, deferKey(ofInbox), newMessage(ofInbox, ""), 1, errRefused)
}

// operate deals with the dead letters.
func operate(ctx context.Context, p *process) error {
	operator, err := p.operator()
	if err != nil {
		return err
	}
	with := func(id string, do func(letter int64) error) error {
		return insist(ctx, func() error {
			found, _, err := operator.DeadLetters(ctx, admin.Filter{MessageID: id})
			if err != nil || len(found) == 0 {
				return err
			}
			return do(found[0].ID)
		})
	}
	return errors.Join(
		with("requeued", func(letter int64) error {
			return errorOf(operator.Requeue(ctx, admin.Filter{ID: letter}, admin.Again{}))
		}),
		insist(ctx, func() error {
			_, err := operator.Requeue(ctx, admin.Filter{Topic: "more"}, admin.Again{})
			return err
		}),
		with("edited", func(letter int64) error {
			return errorOf(operator.Requeue(ctx, admin.Filter{ID: letter}, admin.Again{Payload: message.Payload("another one")}))
		}),
		with("resolved", func(letter int64) error {
			return errorOf(operator.Resolve(ctx, admin.Filter{ID: letter}, "nobody needs it"))
		}),
		with("deleted", func(letter int64) error { return errorOf(operator.Delete(ctx, admin.Filter{ID: letter})) }),
		with(ofInbox, func(letter int64) error {
			return errorOf(operator.Requeue(ctx, admin.Filter{ID: letter}, admin.Again{Topic: "payments"}))
		}),
	)
}

// Also covers G2, F5 and F22.
func TestCrash_G9_while_requeuing(t *testing.T) {
	t.Parallel()
	each(t, flow{
		name: "requeue", least: 30, prepare: die, life: operate,
		// At every moment a message is either dead or pending.
		instant: func(c *check) {
			places := list(c.T, c.w.database, listPending, outboxName)
			for id := range c.letters() {
				places = append(places, id)
			}
			for _, id := range []string{"requeued", "edited", "all 1", "all 2", ofInbox} {
				n := len(places) - len(slices.DeleteFunc(slices.Clone(places), func(other string) bool { return other == id }))
				c.require().Equal(1, n, "%s is to be in one place: %v", id, places)
			}
		},
		after: func(ctx context.Context, p *process) error {
			return errors.Join(operate(ctx, p), p.forward(ctx, forwarder.Config{}))
		},
		check: func(c *check) {
			c.published("orders", "requeued", "edited")
			c.published("more", "all 1", "all 2")
			c.published("payments", ofInbox)
			c.pending(outboxName)
			c.require().Empty(c.letters())
			c.require().Equal(2, c.count(countLetters), "the one that is resolved, and the one that was edited")
			c.require().Equal(7, c.count(countActs), "the audit log has the number of what was done, each once")
			c.require().Zero(c.count(countClaims), "the inbox shall handle its message again")
		},
	})
}
