package place

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// Orders writes business rows together with their messages, and numbers them for each key.
type Orders struct {
	place   *Place
	outbox  *forwarder.Publisher
	topic   string
	last    []int64 // number of each key
	filling []byte
}

// NewOrders returns a writer of orders with so many keys, whose messages have payloads of so many
// bytes.
func (p *Place) NewOrders(outbox *forwarder.Publisher, topic string, keys, size int) *Orders {
	return &Orders{place: p, outbox: outbox, topic: topic, last: make([]int64, keys), filling: Filling(size)}
}

// Produce writes an order in each interval until ctx ends: for the first key, and for each key that
// is so many steps further. Several producers may run at the same time, each with keys of its own.
func (o *Orders) Produce(ctx context.Context, first, step int, interval time.Duration) error {
	due := time.NewTicker(interval)
	defer due.Stop()
	for k := first; ; k = (k + step) % len(o.last) {
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
		}
		// A transaction that has begun is finished.
		if err := o.write(context.WithoutCancel(ctx), k); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
}

func (o *Orders) write(ctx context.Context, k int) error {
	key := fmt.Sprint("key-", k)
	o.last[k]++
	return postbox.InTx(ctx, o.place.DB, func(ctx context.Context, tx *sql.Tx) error {
		if err := Order(ctx, tx, key, o.last[k]); err != nil {
			return err
		}
		msg := Message(key, o.last[k], o.filling)
		msg.SetContext(ctx)
		return o.outbox.Publish(o.topic, msg)
	})
}
