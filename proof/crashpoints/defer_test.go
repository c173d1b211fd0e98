package crashpoints_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// queue is the queue of deferred messages.
const queueName = "fraud"

// queueSpool is its name in the database.
const queueSpool = spool.QueuePrefix + queueName

func deferKey(id string) inboxstore.Key {
	return inboxstore.Key{Consumer: consumer, Topic: "payments", MessageID: id}
}

// deferOneByOne stores what the broker delivers, one by one.
func deferOneByOne(ctx context.Context, p *process) error {
	store, err := p.store()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	return p.redeliver(ctx, func(msg *message.Message) error {
		_, err := store.Defer(ctx, queueName, deferKey(msg.UUID), msg)
		return err
	})
}

// deferTogether stores what the broker delivers all at once, so that commits are shared.
func deferTogether(ctx context.Context, p *process) error {
	store, err := p.store()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	for range rounds {
		left := p.w.deliveries()
		if len(left) == 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		var deliveries sync.WaitGroup
		for _, msg := range left {
			deliveries.Go(func() {
				if _, err := store.Defer(ctx, queueName, deferKey(msg.UUID), msg); err == nil {
					_ = p.ack(msg.UUID) // or it comes again
				}
			})
		}
		deliveries.Wait()
	}
	return fmt.Errorf("the broker is tired of delivering again")
}

// deferInTx stores what the broker delivers in transactions of others.
func deferInTx(ctx context.Context, p *process) error {
	store, err := p.store()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	return p.redeliver(ctx, func(msg *message.Message) error {
		return postbox.InTx(ctx, p.db, func(ctx context.Context, _ *sql.Tx) error {
			fresh, err := store.Defer(ctx, queueName, deferKey(msg.UUID), msg)
			if err == nil && fresh {
				err = p.effect(ctx, msg.UUID)
			}
			return err
		})
	})
}

// stored stores messages whose acks are lost. Two of them are enough that some share their commit
// with new ones when all are delivered again, so that the database must be asked which ones it has.
func stored(ctx context.Context, p *process, messages ...*message.Message) error {
	store, err := p.store()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	for _, msg := range messages {
		if _, err := store.Defer(ctx, queueName, deferKey(msg.UUID), msg); err != nil {
			return err
		}
	}
	return nil
}

// coalesced is the number of messages that are stored together.
const coalesced = 10

// Also covers G2, F5, F6 and F26.
func TestCrash_G5_while_deferring(t *testing.T) {
	t.Parallel()
	one, two := newMessage("one", "k"), newMessage("two", "k")
	var many []*message.Message
	var ids []string
	for i := range coalesced {
		many = append(many, newMessage(fmt.Sprint(i), fmt.Sprint(i%2)))
		ids = append(ids, fmt.Sprint(i))
	}
	// acked means stored: at the moment of the crash, and not only when all was delivered again.
	acked := func(ids ...string) func(c *check) {
		return func(c *check) {
			var gone []string
			left := map[string]bool{}
			for _, msg := range c.w.deliveries() {
				left[msg.UUID] = true
			}
			for _, id := range ids {
				if !left[id] {
					gone = append(gone, id)
				}
			}
			c.require().Subset(list(c.T, c.w.database, listPending, queueSpool), gone)
		}
	}
	all := func(ids ...string) func(c *check) {
		return func(c *check) {
			c.pending(queueSpool, ids...)
			c.require().Equal(len(ids), c.count(countClaims))
			c.dead()
		}
	}
	each(t,
		flow{
			name: "defer", least: 6, life: deferOneByOne, prepare: delivering(one, two, one),
			instant: acked("one", "two"), check: all("one", "two"),
		},
		flow{
			name: "defer several in one commit", least: coalesced, life: deferTogether, prepare: func(ctx context.Context, p *process) error {
				if err := stored(ctx, p, many[1], many[6]); err != nil {
					return err
				}
				return delivering(append(many, many[0])...)(ctx, p)
			},
			instant: acked(ids...), check: all(ids...),
		},
		flow{
			name: "defer in a transaction of others", least: 12, life: deferInTx, prepare: delivering(one, two, one),
			instant: acked("one", "two"), check: func(c *check) {
				all("one", "two")(c)
				c.effects("one", "two")
			},
		},
	)
}
