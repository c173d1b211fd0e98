package deferred

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/queue"
)

// concurrent handlers, as many as River's workers.
const concurrent = 100

// Micro-batches: so many messages share a transaction, and so many of those run at a time.
const (
	microBatch   = 100
	microBatches = 8
)

func many(stage *measure.Stage) int { return stage.Scale(50_000, 10_000) }

func some(stage *measure.Stage) int { return stage.Scale(10_000, 3_000) }

func few(stage *measure.Stage) int { return stage.Scale(3_000, 1_000) }

// Work works off what has been stored.
func Work() measure.Scenario {
	return measure.Scenario{
		Name:  "deferred",
		About: "work off stored messages that are there: handlers that do nothing, and handlers with one update in a transaction",
		Floor: "by-hand-tx",
		Contenders: []measure.Contender{
			{Name: "ours", Run: func(ctx context.Context, stage *measure.Stage) error {
				return onStage(stage).workNothing(ctx, stage, many(stage), queue.Config{Concurrency: concurrent})
			}},
			{Name: "river", Run: workRiver(some, false)},
			{Name: "ours-tx", Run: oursInTx(some, queue.Config{Concurrency: concurrent, Transactional: true})},
			{Name: "river-tx", Run: workRiver(few, true)},
			{Name: "ours-microbatch", Run: oursInTx(many, queue.Config{Concurrency: microBatches, MicroBatch: microBatch})},
			{Name: "by-hand-tx", Run: onPostgresSite(byHand)},
		},
		Targets: []measure.Target{
			{Name: "deferred", Ours: "ours", Other: "river", AtLeast: 4},
			{Name: "deferred-tx", Ours: "ours-tx", Other: "river-tx", AtLeast: 3},
			{Name: "deferred-microbatch", Ours: "ours-microbatch", Other: "river-tx", AtLeast: 10},
			{Name: "microbatch", Ours: "ours-microbatch", Other: "by-hand-tx", AtLeast: 5},
			{Name: "wal", Ours: "ours", Limit: 65, Metric: measure.WAL, Lower: true, AtLeast: 1},
		},
	}
}

func oursInTx(n func(*measure.Stage) int, config queue.Config) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		return onStage(stage).workShaped(ctx, stage, load.Usual(), n(stage), config)
	}
}

// workNothing works off n messages with a handler that does nothing.
func (s site) workNothing(ctx context.Context, stage *measure.Stage, n int, config queue.Config) error {
	if err := s.fill(ctx, n); err != nil {
		return err
	}
	return s.work(ctx, stage, n, config, noop)
}

// workShaped works off n messages of a shape, with an update in a transaction for each.
func (s site) workShaped(ctx context.Context, stage *measure.Stage, shape load.Shape, n int, config queue.Config) error {
	if err := s.fill(ctx, 0); err != nil {
		return err
	}
	if err := s.store(ctx, shape.Messages(0, n)); err != nil {
		return err
	}
	handle, err := s.updates(ctx)
	if err != nil {
		return err
	}
	return s.work(ctx, stage, n, config, handle)
}

// handlersByHand work at a time on what is done by hand: with more it is slower.
const handlersByHand = 16

// byHand is the usual transaction for each message that a broker delivers: claim, update, commit,
// nothing prepared.
func byHand(ctx context.Context, stage *measure.Stage, at site) error {
	if err := accounts.Create(ctx, at.setup, append(at.CreateAccounts, at.CreateProcessed)...); err != nil {
		return err
	}
	list := load.Messages(0, some(stage))
	if err := stage.Start(ctx); err != nil {
		return err
	}
	err := load.Clients(ctx, len(list), handlersByHand, func(ctx context.Context, i int) error {
		return at.handleByHand(ctx, list[i], int64(i%load.Keys)+1)
	})
	return errors.Join(err, stage.Stop(len(list)))
}

func (s site) handleByHand(ctx context.Context, msg *message.Message, account int64) error {
	tx, err := s.database.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, s.Claim, "accounts", msg.UUID)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, tx.Rollback())
	}
	if _, err := tx.ExecContext(ctx, s.UpdateAccount, account); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
