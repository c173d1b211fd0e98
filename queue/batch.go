package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// BatchHandler handles many messages at once. Nil means that all are done; a [BatchError] that all are but those it
// names; any other error that at least one of them failed, and which one is found out by handling halves.
//
// With Config.Transactional the context carries a transaction: see [postbox.TxFromContext].
type BatchHandler func(ctx context.Context, messages []*message.Message) error

// Batch gives the messages of a queue to a handler in batches. It is safe for concurrent use, and run in any number of
// processes, of which those that have nothing to do stand by.
//
// A batch that fails is split in two, and so on, until the culprit stands alone: only that is retried, or dead, and the
// others are done. With a transaction each part has one of its own, and what a failed part has written is rolled back;
// without one a handler sees the messages of a batch that failed again.
//
// After a crash the messages of its batch are handled again, once the lease has run out.
type Batch struct {
	queue   *queue
	config  BatchConfig
	handler BatchHandler
	life    lifecycle.Once
}

// NewBatch returns a batch handler for a queue of the store. A nil logger logs nothing.
func NewBatch(store *inboxstore.Store, name string, handler BatchHandler, config BatchConfig, logger watermill.LoggerAdapter) (*Batch, error) {
	if store == nil || handler == nil {
		return nil, errors.New("inbox batch: the store or the handler is nil")
	}
	if err := spool.CheckQueue(name); err != nil {
		return nil, fmt.Errorf("inbox batch: %w", err)
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("inbox batch: invalid config: %w", err)
	}
	settings, err := config.drainer(store.Core())
	if err != nil {
		return nil, fmt.Errorf("inbox batch: invalid config: %w", err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	b := &Batch{config: config, handler: handler}
	b.queue = newQueue(store.Core(), name, config.QueueConfig, logger)
	b.queue.drain(batches{b}, settings)
	return b, nil
}

// Run works the queue off until ctx ends or Close is called, and returns after a clean stop: handlers under way have the
// store's close timeout. It waits for a database that is away, and returns an error where waiting does not help: the
// tables are missing, or the queue has another number of lanes. It can be called once.
func (b *Batch) Run(ctx context.Context) error {
	ctx, end, err := b.life.Begin(ctx, fmt.Sprintf("batch of queue %.300q", b.queue.name))
	if err != nil {
		return err
	}
	defer end()
	return b.queue.run(ctx)
}

// Running is closed when the queue has been looked at for the first time.
func (b *Batch) Running() <-chan struct{} { return b.queue.drainer.Ready() }

// Close stops cleanly and waits for the end of Run. It can be called twice, and before Run, which then fails with
// [postbox.ErrClosed].
func (b *Batch) Close() error {
	b.life.Close()
	return nil
}

// batches is the handler of the queue's spool.
type batches struct{ *Batch }

// Excluded lists the topic of a queue in an outage.
func (b batches) Excluded() []string { return b.queue.excluded() }

// Handle handles a batch, and finds out which of its messages fail.
func (b batches) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	r := &bisection{progress: newProgress(batch), batch: b.Batch, began: time.Now()}
	r.handle(ctx, r.indices())
	return r.outcomes
}

// call runs the handler on a part of a batch. What is the handler's error comes back as [inbox.HandlerError].
func (b *Batch) call(ctx context.Context, part []*spool.Message) (messages []*message.Message, err error) {
	run := func(ctx context.Context) error {
		if timeout := b.config.QueueConfig.HandlerTimeout; timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, timeout)
			defer stop()
		}
		messages = make([]*message.Message, len(part))
		for i, stored := range part {
			messages[i] = b.queue.message(ctx, stored)
		}
		return spool.Protect(func() error { return b.handler(ctx, messages) })
	}
	if b.config.QueueConfig.Transactional {
		err = b.queue.transact(ctx, part, func(inTx context.Context, _ func() error) error { return run(inTx) })
	} else {
		err = b.queue.core.WithoutTransaction(ctx, func() error { return run(ctx) })
	}
	return messages, err
}
