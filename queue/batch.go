package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// BatchHandler handles many messages at once. If it returns nil, all messages are done. If it
// returns a [BatchError], the messages that the error names have failed and the others are done.
// After any other error at least one message has failed, and Postbox finds it by handling halves of
// the batch. A BatchError that names only messages that are not in the batch is such an error. Ack
// and Nack of these messages have no meaning: return the error. [Fail] finds no message in the
// context of a batch. If that carries a transaction, all of the batch has failed.
//
// With Config.Transactional the context carries a transaction: see [postbox.TxFromContext].
type BatchHandler func(ctx context.Context, messages []*message.Message) error

// Batch gives the messages of a queue to a handler in batches. It is safe for concurrent use. Any
// number of processes may run it; processes that have nothing to do stand by.
//
// A batch that fails is split in two, and the failing half is split again, until the culprit is
// alone. Only the culprit is retried or becomes a dead letter; later messages of its key wait, and
// the others are done. With Transactional each part has a transaction of its own, and everything
// that a failed part has written is rolled back. Without Transactional a handler sees the messages
// of a failed batch again.
//
// After a crash, the messages of the batch that was being handled are handled again once the lease
// has expired.
type Batch struct {
	queue   *queue
	config  BatchConfig
	handler BatchHandler
	life    lifecycle.Once
}

// NewBatch returns a batch handler for a queue of the store. A nil logger logs nothing.
func NewBatch(store *inboxstore.Store, name string, handler BatchHandler, config BatchConfig, logger watermill.LoggerAdapter) (*Batch, error) {
	if store == nil || inbox.CoreOf(store) == nil {
		return nil, errors.New("queue batch: the store is nil, or was not made by inboxstore.New")
	}
	if handler == nil {
		return nil, errors.New("queue batch: the handler is nil")
	}
	if err := spool.CheckQueue(name); err != nil {
		return nil, fmt.Errorf("queue batch: %w", err)
	}
	config.setDefaults()
	if err := config.validate(inbox.CoreOf(store).Statements.Kind); err != nil {
		return nil, fmt.Errorf("queue batch: invalid config: %w", err)
	}
	settings, err := config.drainer(inbox.CoreOf(store))
	if err != nil {
		return nil, fmt.Errorf("queue batch: invalid config: %w", err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	b := &Batch{config: config, handler: handler}
	b.queue = newQueue(inbox.CoreOf(store), name, config.Worker, logger)
	b.queue.drain(batches{b}, settings)
	return b, nil
}

// Run processes the queue until ctx ends or Close is called, and returns after a clean stop.
// Running handlers then have the store's close timeout to finish. If the database is unavailable,
// Run waits. It returns an error only if waiting does not help: the tables are missing, for
// example. It can be called once.
func (b *Batch) Run(ctx context.Context) error {
	ctx, end, err := b.life.Begin(ctx, fmt.Sprintf("batch of queue %.300q", b.queue.name))
	if err != nil {
		return err
	}
	defer end()
	return b.queue.run(ctx)
}

// Running is closed after the queue has been polled for the first time.
func (b *Batch) Running() <-chan struct{} { return b.queue.drainer.Ready() }

// Health tells whether the batch works, for package health.
func (b *Batch) Health() []health.State { return []health.State{b.queue.health()} }

// Close stops cleanly and waits for the end of Run. It can be called twice. It can also be called
// before Run, which then fails with [postbox.ErrClosed].
func (b *Batch) Close() error {
	b.life.Close()
	return nil
}

// batches is the handler that the drainer of the queue calls.
type batches struct{ *Batch }

// Excluded lists the topic of the queue while there is an outage.
func (b batches) Excluded() []string { return b.queue.excluded() }

// Handle handles a batch, and finds out which of its messages fail.
func (b batches) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	r := &bisection{progress: newProgress(batch), batch: b.Batch, began: time.Now()}
	r.handle(ctx, r.indices(), batch[0].Last)
	return r.outcomes
}

// lastKey is in the context of the last call of a scheduled time.
type lastKey struct{}

// LastBatch reports whether a call of a [BatchHandler] with this context is the last one of a
// scheduled time, for example to send a report once. It is false without BatchConfig.Schedule, and
// with PerKey.
//
// The call may fail, and the messages of a failed call come again. Messages come in a later call,
// which is then the last one again, if they failed, if an earlier message of their key failed, or
// if their transaction was open for more than a second after the scheduled time. With a Concurrency
// above 1, earlier calls may still be running.
func LastBatch(ctx context.Context) bool {
	last, _ := ctx.Value(lastKey{}).(bool)
	return last
}

// call runs the handler on a part of a batch. It returns an error of the handler as
// [inbox.HandlerError].
func (b *Batch) call(ctx context.Context, part []*spool.Message, last bool) (messages []*message.Message, err error) {
	run := func(ctx context.Context) error {
		ctx = context.WithValue(ctx, lastKey{}, last)
		messages = make([]*message.Message, len(part))
		for i, stored := range part {
			messages[i] = b.queue.message(ctx, stored)
		}
		return spool.Recovered(func() error { return b.handler(ctx, messages) })
	}
	if b.config.Worker.Transactional {
		err = b.queue.transact(ctx, part, func(inTx context.Context, _ func() error) error { return run(inTx) })
	} else {
		err = b.queue.core.WithoutTransaction(ctx, func() error { return run(ctx) })
	}
	return messages, err
}
