package transactions_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/transactions/sqlcdb"
)

type plainShop struct{ db *sql.DB }

func openPlain(_ *testing.T, database *testdb.Database) (shop, *sql.DB) {
	return plainShop{database.DB}, database.DB
}

func (s plainShop) place(ctx context.Context, bus *cqrs.EventBus, id string) error {
	return postbox.InTx(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1)`, id); err != nil {
			return err
		}
		return bus.Publish(ctx, OrderPlaced{OrderID: id}) // the transaction is in ctx
	})
}

func (s plainShop) pay(ctx context.Context, tx *sql.Tx, orderID string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO payments (order_id) VALUES ($1)`, orderID)
	return err
}

// beginShop begins and commits its transactions itself.
type beginShop struct{ plainShop }

func openBegin(_ *testing.T, database *testdb.Database) (shop, *sql.DB) {
	return beginShop{plainShop{database.DB}}, database.DB
}

func (s beginShop) place(ctx context.Context, bus *cqrs.EventBus, id string) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1)`, id); err != nil {
		return err
	}
	if err := bus.Publish(postbox.ContextWithTx(ctx, tx), OrderPlaced{OrderID: id}); err != nil {
		return err
	}
	return tx.Commit() // then call outbox.Announce(), or wait for the next poll
}

type sqlxShop struct{ db *sqlx.DB }

func openSqlx(_ *testing.T, database *testdb.Database) (shop, *sql.DB) {
	return sqlxShop{sqlx.NewDb(database.DB, database.Driver)}, database.DB
}

func (s sqlxShop) place(ctx context.Context, bus *cqrs.EventBus, id string) error {
	tx, err := s.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.NamedExecContext(ctx, `INSERT INTO orders (id) VALUES (:id)`, map[string]any{"id": id}); err != nil {
		return err
	}
	err = bus.Publish(postbox.ContextWithTx(ctx, tx), OrderPlaced{OrderID: id})
	if err != nil {
		return err
	}
	return tx.Commit()
}

func (s sqlxShop) pay(ctx context.Context, tx *sql.Tx, orderID string) error {
	x := &sqlx.Tx{Tx: tx, Mapper: s.db.Mapper}
	query, args, err := s.db.BindNamed(`INSERT INTO payments (order_id) VALUES (:order_id)`, map[string]any{"order_id": orderID})
	if err != nil {
		return err
	}
	_, err = x.ExecContext(ctx, query, args...)
	return err
}

// What the page says of sqlx: the driver's name is missing in a transaction that others began.
func TestSqlx_named_statements_of_a_transaction_of_others_fail(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	err := postbox.InTx(t.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
		_, err := (&sqlx.Tx{Tx: tx, Mapper: sqlx.NewDb(database.DB, "postgres").Mapper}).
			NamedExecContext(ctx, "SELECT :order_id", map[string]any{"order_id": "1"})
		return err
	})
	require.ErrorContains(t, err, "syntax error")
}

type sqlcShop struct {
	db      *sql.DB
	queries *sqlcdb.Queries
}

func openSqlc(_ *testing.T, database *testdb.Database) (shop, *sql.DB) {
	return sqlcShop{database.DB, sqlcdb.New(database.DB)}, database.DB
}

func (s sqlcShop) place(ctx context.Context, bus *cqrs.EventBus, id string) error {
	return postbox.InTx(ctx, s.db, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.queries.WithTx(tx).CreateOrder(ctx, id); err != nil {
			return err
		}
		return bus.Publish(ctx, OrderPlaced{OrderID: id})
	})
}

func (s sqlcShop) pay(ctx context.Context, tx *sql.Tx, orderID string) error {
	return s.queries.WithTx(tx).CreatePayment(ctx, orderID)
}

type pgxShop struct {
	plainShop // handlers get a *sql.Tx
	pool      *pgxpool.Pool
}

func openPgx(t *testing.T, database *testdb.Database) (shop, *sql.DB) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), database.DSN)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	return pgxShop{plainShop{db}, pool}, db
}

func (s pgxShop) place(ctx context.Context, bus *cqrs.EventBus, id string) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES ($1)`, id); err != nil {
			return err
		}
		return bus.Publish(postbox.ContextWithTx(ctx, postbox.ExecFunc(tx.Exec)), OrderPlaced{OrderID: id})
	})
}
