package role

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

const (
	batchSize = 20
	batchAge  = 500 * time.Millisecond
	// kept is how long a queue keeps what is done, so that there is something to purge all the
	// while.
	kept = 10 * time.Second
)

// work stores deliveries in queues, and works them off.
func (p *process) work(ctx context.Context) error {
	return p.serve(ctx, func(s *service, flow ledger.Flow, subscriber message.Subscriber) error {
		config := queue.Config{
			Tuning: postbox.Tuning{ListenDSN: p.Database, Lease: Lease, ProbeMax: ProbeMax, PageSize: 100}, Retry: soon(flow.Attempts), History: kept,
			Transactional: flow.Work != ledger.Claimed, Concurrency: 6,
		}
		storing := middleware.DeferConfig{Retry: soon(flow.Attempts)}
		var err error
		switch flow.Work {
		case ledger.Batched:
			config.Concurrency = 1
			_, err = s.AddBatchHandler(flow.Consumer, flow.Topic, subscriber, p.handleBatch(flow), router.BatchConfig{
				Defer: storing, Batch: queue.BatchConfig{Size: batchSize, Age: batchAge, Worker: config},
			})
		case ledger.Claimed:
			_, err = s.AddQueueHandler(flow.Consumer, flow.Topic, subscriber, flow.Emits, p.handleOnce(flow, s.store),
				router.QueueConfig{Defer: storing, Worker: config})
		default:
			_, err = s.AddQueueHandler(flow.Consumer, flow.Topic, subscriber, flow.Emits, p.handle(flow),
				router.QueueConfig{Defer: storing, Worker: config})
		}
		return err
	})
}

// handleOnce is a handler that a queue runs at least once, and that has its effect once by a claim.
func (p *process) handleOnce(flow ledger.Flow, store *inboxstore.Store) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		i, err := readMessage(msg)
		if err != nil {
			return nil, err
		}
		// The queue has claimed the message for its own name when it was stored.
		key := inboxstore.Key{Consumer: flow.Consumer + "'s effect", Topic: flow.Topic, MessageID: msg.UUID}
		fresh, err := store.Once(msg.Context(), key, func(ctx context.Context) error {
			return p.note(ctx, flow, i, func() error { return p.apply(ctx, flow, i) })
		})
		if err == nil && !fresh {
			p.history.Write(record(history.Duplicate, i, flow.Consumer))
		}
		return nil, err
	}
}

// handleBatch applies the messages of a batch one after the other. The first that fails fails the
// batch.
func (p *process) handleBatch(flow ledger.Flow) queue.BatchHandler {
	return func(ctx context.Context, messages []*message.Message) error {
		for _, msg := range messages {
			i, err := readMessage(msg)
			if err != nil {
				return err
			}
			if len(messages) == 1 {
				return p.note(ctx, flow, i, func() error { return p.apply(ctx, flow, i) })
			}
			if err := p.applyAmong(ctx, flow, i); err != nil {
				return err
			}
		}
		return nil
	}
}

// applyAmong is [process.note] for a message among others, whose failure does not count yet.
func (p *process) applyAmong(ctx context.Context, flow ledger.Flow, i ledger.Intent) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = errors.Join(errPlanned, fmt.Errorf("message %s: panic: %v", i.Message, reason))
		}
	}()
	p.history.Write(record(history.Saw, i, flow.Consumer))
	if err := p.apply(ctx, flow, i); err != nil {
		return fmt.Errorf("message %s: %w", i.Message, err)
	}
	p.noteAfterCommit(ctx, flow, i)
	return nil
}
