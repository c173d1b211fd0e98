// Package load makes the messages of the benchmark and the clients that work at a time.
package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	postbox "github.com/postbox-go/watermill-postbox"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// What all contenders send.
const (
	Topic       = "orders"
	PayloadSize = 256
	Keys        = 1000
	Page        = 1000 // messages in one call of a publisher, when tables are filled
	WarmUp      = 20   // messages of each client before the clock starts, so that there are connections and plans
)

// Messages returns so many, beginning with a number, each with one of the keys.
func Messages(first, n int) []*message.Message {
	payload := make([]byte, PayloadSize)
	for i := range payload {
		payload[i] = byte('a' + i%26)
	}
	batch := make([]*message.Message, n)
	for i := range batch {
		batch[i] = message.NewMessage(postbox.NewMessageID(), payload)
		batch[i].Metadata.Set(postbox.OrderingKey, fmt.Sprint("customer-", (first+i)%Keys))
	}
	return batch
}

// Fill publishes n messages, page by page.
func Fill(n int, publish func(batch ...*message.Message) error) error {
	for first := 0; first < n; first += Page {
		if err := publish(Messages(first, min(Page, n-first))...); err != nil {
			return fmt.Errorf("fill the outbox: %w", err)
		}
	}
	return nil
}

// Clients calls work for each number below n, so many at a time, and returns the first error, after which it stops.
func Clients(ctx context.Context, n, clients int, work func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := work(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// Deliver measures work on n messages, so many clients at a time.
func Deliver(ctx context.Context, stage *measure.Stage, clients, n int, work func(context.Context, *message.Message) error) error {
	list := Messages(0, WarmUp*clients+n)
	all := func(part []*message.Message) error {
		return Clients(ctx, len(part), clients, func(ctx context.Context, i int) error { return work(ctx, part[i]) })
	}
	warmUp, measured := list[:WarmUp*clients], list[WarmUp*clients:]
	if err := all(warmUp); err != nil {
		return err
	}
	if err := stage.Start(ctx); err != nil {
		return err
	}
	if err := all(measured); err != nil {
		return err
	}
	return stage.Stop(n)
}
