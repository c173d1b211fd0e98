// Package load makes the messages of the benchmark and the clients that work at a time.
package load

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Topic is that of all messages.
const Topic = "orders"

// WarmUp is the messages of each client before the clock starts, so that there are connections and
// plans.
const WarmUp = 20

// Messages returns so many of the usual shape, beginning with a number.
func Messages(first, n int) []*message.Message { return Usual().Messages(first, n) }

// Fill publishes n messages of the usual shape, page by page.
func Fill(n int, publish func(batch ...*message.Message) error) error {
	return Usual().Fill(n, publish)
}

// Deliver measures work on n messages of the usual shape, so many clients at a time.
func Deliver(ctx context.Context, stage *measure.Stage, clients, n int, work func(context.Context, *message.Message) error) error {
	return Usual().Deliver(ctx, stage, clients, n, work)
}

// Clients calls work for each number below n, so many at a time, and returns the first error, after
// which it stops.
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
