package crashpoints_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// deferred returns what stores messages in the queue.
func deferred(messages ...*message.Message) func(ctx context.Context, p *process) error {
	return func(ctx context.Context, p *process) error {
		store, err := p.store()
		if err != nil {
			return err
		}
		defer func() { _ = store.Close() }()
		for _, msg := range messages {
			if _, err := store.Defer(ctx, queueName, deferKey(msg.UUID), msg.Copy()); err != nil {
				return err
			}
		}
		return nil
	}
}

// settings completes the configuration of a queue.
func settings(config queue.Config) queue.Config {
	config.PollMin, config.PollMax, config.ProbeMin, config.ProbeMax = pollMin, pollMax, pollMin, pollMax
	config.Retry = retry
	if config.Concurrency == 0 {
		config.Concurrency = 2
	}
	return config
}

// processing is how a queue is worked off.
type processing struct {
	config queue.Config
	poison bool // dead letters are published
}

// life works off the queue.
func (how processing) life(ctx context.Context, p *process) error {
	store, err := p.store()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	outbox, err := p.outbox()
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	config := settings(how.config)
	if how.poison {
		config.Poison.Outbox, config.Poison.Topic = outbox, "poison"
	}
	subscriber, err := queue.NewSubscriber(store, config, nil)
	if err != nil {
		return err
	}
	defer func() { _ = subscriber.Close() }()
	emitting, err := middleware.ProcessWith(middleware.ProcessConfig{Outbox: outbox, PublishTopic: receipts})
	if err != nil {
		return err
	}
	handler := emitting(p.handler(config.Transactional || config.MicroBatch > 1))
	return p.until(ctx, func(ctx context.Context) error {
		received, err := subscriber.Subscribe(ctx, queueName)
		if err != nil {
			return err
		}
		var handlers sync.WaitGroup
		defer handlers.Wait()
		for msg := range received {
			handlers.Go(func() {
				if _, err := handler(msg); err != nil {
					msg.Nack()
				} else {
					msg.Ack()
				}
			})
		}
		return nil
	}, p.w.drained(queueSpool))
}

// handler writes and emits, where it has a transaction for it.
func (p *process) handler(transactional bool) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if !transactional {
			return nil, p.handle(msg.UUID)
		}
		if err := p.effect(msg.Context(), msg.UUID); err != nil {
			return nil, err
		}
		if err := p.handle(msg.UUID); err != nil {
			return nil, err
		}
		return []*message.Message{receipt(msg.UUID)}, nil
	}
}

// good are messages with which nothing is wrong.
func good() []*message.Message {
	return []*message.Message{newMessage("a1", "a"), newMessage("b1", "b"), newMessage("a2", "a"), newMessage("n1", ""), newMessage("a3", "a")}
}

// mixed are messages of which some fail.
func mixed() []*message.Message {
	return []*message.Message{
		newMessage("a1", "a"), newMessage(flaky, "a"), newMessage("a3", "a"), newMessage(bad, "b"), newMessage("b2", "b"), newMessage(fatal, ""),
	}
}

// once checks that good messages, in a transaction, have had their effects.
func goodOnce(c *check) {
	c.effects("a1", "a2", "a3", "b1", "n1")
	c.inOrder("a1", "a2", "a3")
	c.pending(queueSpool)
	c.pending(outboxName, "receipt of a1", "receipt of a2", "receipt of a3", "receipt of b1", "receipt of n1")
	c.require().Zero(c.count(countFailures))
	c.dead()
}

// mixedOnce checks that of the others those that can have had theirs.
func mixedOnce(c *check) {
	c.effects("a1", flaky, "a3", "b2")
	c.inOrder("a1", flaky, "a3")
	c.pending(queueSpool)
	c.dead(bad, fatal)
}

// mixedReceipts are what mixed messages leave in the outbox.
var mixedReceipts = []string{"receipt of a1", "receipt of " + flaky, "receipt of a3", "receipt of b2"}

// Also covers G3 and F5.
func TestCrash_G2_while_a_queue_processes(t *testing.T) {
	t.Parallel()
	each(t, flow{
		name: "process", least: 15, prepare: deferred(mixed()...), life: processing{}.life,
		check: func(c *check) {
			c.runs(map[string]int{"a1": 1, flaky: 2, "a3": 1, bad: attempts, "b2": 1, fatal: 1}, 6) // what was handled and is not written down yet comes again
			c.pending(queueSpool)
			c.dead(bad, fatal)
		},
	}, flow{
		name: "process and keep a history", least: 15, prepare: deferred(mixed()...),
		life: processing{config: queue.Config{History: time.Hour}}.life,
		check: func(c *check) {
			c.pending(queueSpool)
			c.dead(bad, fatal)
			c.account(admin.Queue(queueName), admin.Account{Written: 6, Done: 4, Dead: 2})
		},
	})
}

// Also covers G3, F5 and F26.
func TestCrash_G4_while_a_queue_processes_in_transactions(t *testing.T) {
	t.Parallel()
	transactional := queue.Config{Transactional: true, Concurrency: 1, History: time.Hour}
	each(t, flow{
		name: "process in transactions", least: 30, prepare: deferred(good()...),
		life: processing{config: queue.Config{Transactional: true}}.life,
		check: func(c *check) {
			goodOnce(c)
			c.runs(map[string]int{"a1": 1, "a2": 1, "a3": 1, "b1": 1, "n1": 1}, 1)
		},
	}, flow{
		name: "process in transactions with failures", least: 40, prepare: deferred(mixed()...),
		life: processing{config: transactional, poison: true}.life,
		check: func(c *check) {
			mixedOnce(c)
			// Failures that are not written down yet come again, at most one of each message that
			// fails.
			c.runs(map[string]int{"a1": 1, flaky: 2, "a3": 1, bad: attempts, "b2": 1, fatal: 1}, 3)
			c.pending(outboxName, append([]string{bad, fatal}, mixedReceipts...)...)
			c.account(admin.Queue(queueName), admin.Account{Written: 6, Done: 4, Dead: 2})
		},
	}, flow{
		name: "process in micro-batches", least: 15, prepare: deferred(good()...),
		life:  processing{config: queue.Config{MicroBatch: 3}}.life,
		check: goodOnce,
	}, flow{
		name: "process in micro-batches with failures", least: 30, prepare: deferred(mixed()...),
		life: processing{config: queue.Config{MicroBatch: 3, Concurrency: 1}}.life,
		check: func(c *check) {
			mixedOnce(c)
			c.pending(outboxName, mixedReceipts...)
		},
	})
}

// batch is how a queue is worked off in batches.
type batch struct{ config queue.BatchConfig }

// life works off the queue.
func (how batch) life(ctx context.Context, p *process) error {
	store, err := p.store()
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	outbox, err := p.outbox()
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	config := how.config
	config.Worker.Concurrency = 1
	config.Worker = settings(config.Worker)
	config.Age = time.Microsecond
	handler := func(ctx context.Context, messages []*message.Message) error {
		var failures []error
		for _, msg := range messages {
			if config.Worker.Transactional {
				out := receipt(msg.UUID)
				out.SetContext(ctx)
				if err := errors.Join(p.effect(ctx, msg.UUID), outbox.Publish(receipts, out)); err != nil {
					return err
				}
			}
			failures = append(failures, p.handle(msg.UUID))
		}
		return errors.Join(failures...)
	}
	b, err := queue.NewBatch(store, queueName, handler, config, nil)
	if err != nil {
		return err
	}
	return p.until(ctx, b.Run, p.w.drained(queueSpool))
}

// Also covers G3, F5 and F26.
func TestCrash_G4_while_a_queue_processes_batches(t *testing.T) {
	t.Parallel()
	transactional := queue.Config{Transactional: true}
	each(t, flow{
		name: "process in batches", least: 12, prepare: deferred(mixed()...), life: batch{queue.BatchConfig{Size: 4}}.life,
		check: func(c *check) {
			c.pending(queueSpool)
			c.dead(bad, fatal)
			c.handledAll("a1", flaky, "a3", bad, "b2", fatal)
		},
	}, flow{
		name: "process in batches in transactions", least: 15, prepare: deferred(good()...),
		life:  batch{queue.BatchConfig{Size: 4, Worker: transactional}}.life,
		check: goodOnce,
	}, flow{
		name: "process in batches in transactions, bisected", least: 40, prepare: deferred(mixed()...),
		life: batch{queue.BatchConfig{Size: 4, Worker: transactional}}.life,
		check: func(c *check) {
			mixedOnce(c)
			c.pending(outboxName, mixedReceipts...)
		},
	}, flow{
		name: "process in batches per key", least: 30, prepare: deferred(mixed()...),
		life: batch{queue.BatchConfig{Size: 4, PerKey: true, Worker: transactional}}.life,
		check: func(c *check) {
			mixedOnce(c)
			c.pending(outboxName, mixedReceipts...)
		},
	})
}

// handledAll: a handler ran for each of these messages.
func (c *check) handledAll(want ...string) {
	c.Helper()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.require().Subset(c.w.handled, want)
}
