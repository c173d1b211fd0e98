package crashpoints_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/postbox-go/watermill-postbox/forwarder"
)

// outboxName is the name of the outbox.
const outboxName = forwarder.DefaultOutbox

// lanes are few, so that messages which have nothing to do with each other share one.
const lanes = 2

func (p *process) outbox() (*forwarder.Publisher, error) {
	return forwarder.NewPublisher(p.db, forwarder.PublisherConfig{Dialect: p.w.database.Dialect, Lanes: lanes}, nil)
}

const orders = 3

// placeOrders places orders, each of them a row and two messages of one key.
func placeOrders(ctx context.Context, p *process) error {
	outbox, err := p.outbox()
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	for i := range orders {
		order := fmt.Sprintf("order-%d", i)
		p.hears(order, forwarder.InTx(ctx, p.db, func(ctx context.Context, _ *sql.Tx) error {
			if err := p.effect(ctx, order); err != nil {
				return err
			}
			for _, what := range []string{" placed", " paid"} {
				msg := newMessage(order+what, "customer")
				msg.SetContext(ctx)
				if err := outbox.Publish("orders", msg); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return nil
}

// Nobody places an order again here, so what was not committed is not there.
func checkOrders(c *check) {
	placed := list(c.T, c.w.database, selectEffects)
	var want []string
	for i := range orders {
		order := fmt.Sprintf("order-%d", i)
		done := slices.Contains(placed, order)
		c.told(order, done)
		c.require().True(done || c.struck)
		if done {
			want = append(want, order+" placed", order+" paid")
		}
	}
	c.effects(slices.Compact(placed)...)
	c.published("orders", want...)
	c.pending(outboxName)
	c.dead()
}

func TestCrash_F5_F26_G1_G2_publish(t *testing.T) {
	t.Parallel()
	each(t, flow{
		name: "publish", least: orders * 5, life: placeOrders, check: checkOrders,
		after: forwardWith(forwarder.Config{}),
	}, flow{
		name: "publish without a transaction", least: 3, check: checkAutocommit,
		life: publishAutocommit, after: forwardWith(forwarder.Config{}),
	})
}

// publishAutocommit publishes two messages at once.
func publishAutocommit(_ context.Context, p *process) error {
	outbox, err := forwarder.NewPublisher(p.db, forwarder.PublisherConfig{
		Dialect: p.w.database.Dialect, Lanes: lanes, AllowAutocommit: true,
	}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	p.hears("both", outbox.Publish("orders", newMessage("first", "k"), newMessage("second", "k")))
	return nil
}

func checkAutocommit(c *check) {
	var want []string
	if len(c.w.published) > 0 {
		want = []string{"first", "second"}
	}
	c.require().True(len(want) > 0 || c.struck)
	c.told("both", len(want) > 0)
	c.published("orders", want...)
	c.pending(outboxName)
	c.dead()
}
