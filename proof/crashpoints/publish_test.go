package crashpoints_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// outboxName is the name of the outbox.
const outboxName = spool.DefaultOutbox

func (p *process) outbox() (*forwarder.Publisher, error) {
	return forwarder.NewPublisher(p.w.database.On(p.db), forwarder.PublisherConfig{}, nil)
}

const orders = 3

// placeOrders places orders, each of them a row and two messages of one key.
func placeOrders(ctx context.Context, p *process) error {
	outbox, err := p.outbox()
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	for _, order := range allOrders() {
		p.hears(order, postbox.InTx(ctx, p.db, p.placing(outbox, order)))
	}
	return nil
}

func allOrders() (all []string) {
	for i := range orders {
		all = append(all, fmt.Sprintf("order-%d", i))
	}
	return all
}

// placing is what is done in a transaction to place an order.
func (p *process) placing(outbox *forwarder.Publisher, order string) func(ctx context.Context, _ *sql.Tx) error {
	return func(ctx context.Context, _ *sql.Tx) error {
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
	}
}

// Nobody places an order again here, so what was not committed is not there.
func checkOrders(c *check) {
	placed := list(c.T, c.w.database, selectEffects)
	var want []string
	for _, order := range allOrders() {
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

// Also covers G2, F5 and F26.
func TestCrash_G1_while_publishing(t *testing.T) {
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
	outbox, err := forwarder.NewPublisher(p.w.database.On(p.db), forwarder.PublisherConfig{
		AllowAutocommit: true,
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
