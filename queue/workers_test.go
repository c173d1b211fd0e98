package queue_test

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/queue"
)

// worker works the queue off in one of its ways, in transactions.
type worker func(b *queueBench, change func(*queue.BatchConfig), handle func(ctx context.Context, msg *message.Message) error)

// workers are the ways that there are. Of the settings, a queue without batches has those of its
// own.
var workers = map[string]worker{
	"single": func(b *queueBench, change func(*queue.BatchConfig), handle func(ctx context.Context, msg *message.Message) error) {
		config := inboxtest.QuickBatch(change).Worker
		config.Transactional = true
		b.Start(config, func(msg *message.Message) error { return handle(msg.Context(), msg) })
	},
	"micro-batch": func(b *queueBench, change func(*queue.BatchConfig), handle func(ctx context.Context, msg *message.Message) error) {
		config := inboxtest.QuickBatch(change).Worker
		config.MicroBatch = 5
		b.Start(config, func(msg *message.Message) error { return handle(msg.Context(), msg) })
	},
	"batch": func(b *queueBench, change func(*queue.BatchConfig), handle func(ctx context.Context, msg *message.Message) error) {
		config := inboxtest.QuickBatch(change)
		config.Worker.Transactional = true
		b.Batch(config, func(ctx context.Context, messages []*message.Message) error {
			for _, msg := range messages {
				if err := handle(ctx, msg); err != nil {
					return err
				}
			}
			return nil
		})
	},
}
