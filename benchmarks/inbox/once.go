package inbox

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// handlers that work at a time.
const handlers = 16

// executor runs the handler's statement: as users mostly write it, which costs lib/pq two round
// trips, or prepared.
type executor func(ctx context.Context, tx *sql.Tx, args ...any) (sql.Result, error)

func plain(_ context.Context, _ *sql.DB, query string) (executor, func() error, error) {
	return func(ctx context.Context, tx *sql.Tx, args ...any) (sql.Result, error) {
		return tx.ExecContext(ctx, query, args...)
	}, func() error { return nil }, nil
}

func prepared(ctx context.Context, db *sql.DB, query string) (executor, func() error, error) {
	statement, err := db.PrepareContext(ctx, query)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, tx *sql.Tx, args ...any) (sql.Result, error) {
		return tx.StmtContext(ctx, statement).ExecContext(ctx, args...)
	}, statement.Close, nil
}

type style func(ctx context.Context, db *sql.DB, query string) (executor, func() error, error)

// Once handles messages with one update each.
func Once() measure.Scenario {
	return measure.Scenario{
		Name:  "inbox",
		About: "a handler that makes one update, 16 at a time",
		Floor: "by-hand-prepared",
		Turns: 2, // ours and what has no dedup lie at the target
		Contenders: []measure.Contender{
			{Name: "ours", Run: oursOnce(load.Unmeasured, plain)},
			{Name: "by-hand", Run: onceByHand(plain, plain)},
			{Name: "no-dedup", Run: noDedup(plain)},
			{Name: "ours-prepared", Run: oursOnce(load.Unmeasured, prepared)},
			{Name: "by-hand-prepared", Run: onceByHand(prepared, prepared)},
			{Name: "claimed-by-hand", Run: onceByHand(prepared, plain)}, // what inbox-nodedup could be at most
		},
		Targets: []measure.Target{
			{Name: "inbox", Ours: "ours-prepared", Other: "by-hand", AtLeast: 1.3},
			{Name: "inbox", Ours: "ours-prepared", Other: "by-hand-prepared", AtLeast: 0.9},
			{Name: "inbox-nodedup", Ours: "ours", Other: "no-dedup", AtLeast: 0.75},
		},
	}
}

// anAccount is the one that a message is about.
func anAccount() int64 { return 1 + rand.Int64N(accounts.Number) } //nolint:gosec // no secret

// site is a database on which handlers work.
type site struct {
	accounts.Words

	// setup is a handle for what is not measured.
	setup    *sql.DB
	database postbox.Database
	// n are the messages that a contender handles.
	n int
}

// onStage is the site of the benchmark's own PostgreSQL.
func onStage(stage *measure.Stage) site {
	return site{accounts.OnPostgres(), stage.Setup, postbox.Database{DB: stage.DB, Dialect: postbox.PostgreSQL}, deliveries(stage)}
}

// shorter is the site of comparisons that are made beside the main ones.
func (s site) shorter() site {
	s.n /= 2
	return s
}

func oursOnce(describe load.Describe, style style) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		at := onStage(stage)
		var err error
		if at.database, err = describe(stage.DB); err != nil {
			return err
		}
		return at.handleOnce(ctx, stage, middleware.InboxConfig{}, style)
	}
}

// handleOnce handles messages with an inbox, which has the consumer and topic of all.
func (s site) handleOnce(ctx context.Context, stage *measure.Stage, config middleware.InboxConfig, style style) error {
	if err := postbox.Migrate(ctx, postbox.Database{DB: s.setup, Dialect: s.Dialect}); err != nil {
		return err
	}
	if err := accounts.Create(ctx, s.setup, s.CreateAccounts...); err != nil {
		return err
	}
	store, err := inboxstore.New(s.database, inboxstore.Config{}, nil)
	if err != nil {
		return err
	}
	config.Consumer, config.Topic = "accounts", load.Topic
	inbox, err := middleware.NewInbox(store, config, nil)
	if err != nil {
		return err
	}
	update, stop, err := style(ctx, s.database.DB, s.UpdateAccount)
	if err != nil {
		return err
	}
	handler := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := postbox.TxFromContext(msg.Context())
		_, err := update(msg.Context(), tx, anAccount())
		return nil, err
	})
	err = load.Deliver(ctx, stage, handlers, s.n, func(ctx context.Context, msg *message.Message) error {
		msg.SetContext(ctx)
		_, err := handler(msg)
		return err
	})
	return errors.Join(err, stop(), store.Close())
}

// deliveries are the messages that a contender handles.
func deliveries(stage *measure.Stage) int { return stage.Scale(12_000, 3_000) }

func onceByHand(claiming, updating style) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		return onStage(stage).onceByHand(ctx, stage, claiming, updating, nil)
	}
}

// onceByHand claims a message, makes the update, and does more, if there is more to do.
func (s site) onceByHand(
	ctx context.Context, stage *measure.Stage, claiming, updating style, more func(ctx context.Context, tx *sql.Tx, msg *message.Message) error,
) error {
	if err := accounts.Create(ctx, s.setup, append(s.CreateAccounts, s.CreateProcessed)...); err != nil {
		return err
	}
	remember, stopRemember, err := claiming(ctx, s.database.DB, s.Claim)
	if err != nil {
		return err
	}
	update, stopUpdate, err := updating(ctx, s.database.DB, s.UpdateAccount)
	if err != nil {
		return err
	}
	err = load.Deliver(ctx, stage, handlers, s.n, func(ctx context.Context, msg *message.Message) error {
		return inTx(ctx, s.database.DB, func(tx *sql.Tx) error {
			result, err := remember(ctx, tx, "accounts", msg.UUID)
			if err != nil {
				return err
			}
			if n, err := result.RowsAffected(); err != nil || n == 0 {
				return err
			}
			if _, err = update(ctx, tx, anAccount()); err != nil || more == nil {
				return err
			}
			return more(ctx, tx, msg)
		})
	})
	return errors.Join(err, stopRemember(), stopUpdate())
}

func noDedup(style style) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		if err := accounts.Create(ctx, stage.Setup, accounts.OnPostgres().CreateAccounts...); err != nil {
			return err
		}
		update, stop, err := style(ctx, stage.DB, accounts.OnPostgres().UpdateAccount)
		if err != nil {
			return err
		}
		err = load.Deliver(ctx, stage, handlers, deliveries(stage), func(ctx context.Context, _ *message.Message) error {
			return inTx(ctx, stage.DB, func(tx *sql.Tx) error {
				_, err := update(ctx, tx, anAccount())
				return err
			})
		})
		return errors.Join(err, stop())
	}
}
