package deferred

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// job is a message as a job of River.
type job struct {
	Payload string `json:"payload"`
	Account int64  `json:"account"`
}

// Kind of the job.
func (job) Kind() string { return "message" }

// River's best: its pgx driver, as many workers as ours handles at a time, and no pause between two
// fetches.
const (
	riverWorkers = 100
	riverPause   = time.Millisecond
	riverPage    = 5000 // jobs in one call that inserts them
)

// worker handles jobs, in a transaction that completes them if there is a pool.
type worker struct {
	river.WorkerDefaults[job]
	pool *pgxpool.Pool
	done *countdown
}

// Work handles a job.
func (w *worker) Work(ctx context.Context, j *river.Job[job]) error {
	if w.pool != nil {
		err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, onPostgres.UpdateAccount, j.Args.Account); err != nil {
				return err
			}
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, j)
			return err
		})
		if err != nil {
			return err
		}
	}
	w.done.one()
	return nil
}

// workRiver fills a queue of River and works it off.
func workRiver(n func(*measure.Stage) int, inTx bool) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		n := n(stage)
		if err := fillRiver(ctx, stage, n); err != nil {
			return err
		}
		config, err := pgxpool.ParseConfig(stage.DSN)
		if err != nil {
			return err
		}
		config.ConnConfig.DialFunc = stage.Wire.Dial
		const connections = riverWorkers + 20
		config.MaxConns = connections
		if err := stage.Start(ctx); err != nil {
			return err
		}
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return err
		}
		defer pool.Close()
		work := &worker{done: newCountdown(n)}
		if inTx {
			work.pool = pool
		}
		client, err := riverClient(pool, work)
		if err != nil {
			return err
		}
		if err := client.Start(ctx); err != nil {
			return err
		}
		err = work.done.wait(ctx)
		return errors.Join(err, stage.Stop(n), client.Stop(ctx))
	}
}

func riverClient(pool *pgxpool.Pool, work *worker) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, work)
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:           workers,
		FetchCooldown:     riverPause,
		FetchPollInterval: riverPause,
		Logger:            slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError})),
	})
}

// fillRiver makes the tables and stores n jobs.
func fillRiver(ctx context.Context, stage *measure.Stage, n int) error {
	if err := accounts.Create(ctx, stage.Setup, onPostgres.CreateAccounts...); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, stage.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		return err
	}
	for first := 0; first < n; first += riverPage {
		list := load.Messages(first, min(riverPage, n-first))
		jobs := make([]river.InsertManyParams, len(list))
		for i, msg := range list {
			jobs[i].Args = job{Payload: string(msg.Payload), Account: int64((first+i)%load.Keys) + 1}
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}
