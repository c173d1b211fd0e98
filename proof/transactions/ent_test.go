package transactions_test

import (
	"context"
	"database/sql"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/transactions/ent"
)

type entShop struct{ client *ent.Client }

func openEnt(_ *testing.T, database *testdb.Database) (shop, *sql.DB) {
	if database.Dialect == postbox.SQLite {
		return entShopOnSQLite{entShop{ent.NewClient(ent.Driver(entsql.OpenDB(dialect.SQLite, database.DB)))}}, database.DB
	}
	return entShop{ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, database.DB)))}, database.DB
}

func (s entShop) place(ctx context.Context, bus *cqrs.EventBus, id string) error {
	tx, err := s.client.Tx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ($1)`, id); err != nil {
		return err
	}
	if err := bus.Publish(postbox.ContextWithTx(ctx, tx), OrderPlaced{OrderID: id}); err != nil {
		return err
	}
	return tx.Commit()
}

func (s entShop) pay(ctx context.Context, tx *sql.Tx, orderID string) error {
	client := ent.NewClient(ent.Driver(entDriver{entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})}))
	return client.Payment.Create().SetOrderID(orderID).Exec(ctx)
}

type entShopOnSQLite struct{ entShop }

func (s entShopOnSQLite) pay(ctx context.Context, tx *sql.Tx, orderID string) error {
	client := ent.NewClient(ent.Driver(entDriver{entsql.NewDriver(dialect.SQLite, entsql.Conn{ExecQuerier: tx})}))
	return client.Payment.Create().SetOrderID(orderID).Exec(ctx)
}

// entDriver works in a transaction that others end. For its own, ent gets that one again.
type entDriver struct{ *entsql.Driver }

func (d entDriver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

// With one connection, which the transaction has, a statement elsewhere would wait for ever.
func TestEnt_G4_nothing_escapes_the_transaction(t *testing.T) {
	t.Parallel()
	database := paymentsOnOneConnection(t)
	inTxRolledBack(t, database, func(ctx context.Context, tx *sql.Tx) {
		conn := entsql.Conn{ExecQuerier: tx}
		client := ent.NewClient(ent.Driver(entDriver{entsql.NewDriver(dialect.Postgres, conn)}))
		refund, err := client.Payment.Create().SetOrderID("1").Save(ctx)
		require.NoError(t, err)
		_, err = client.Payment.Create().SetOrderID("1").AddRefunds(refund).Save(ctx) // two statements, for which ent begins a transaction
		require.NoError(t, err)
		found, err := client.Payment.Query().WithRefunds().All(ctx)
		require.NoError(t, err)
		require.Len(t, found, 2)
		inner, err := client.Tx(ctx)
		require.NoError(t, err)
		require.NoError(t, inner.Payment.Create().SetOrderID("2").Exec(ctx))
		require.NoError(t, inner.Rollback())
		all, err := client.Payment.Query().Count(ctx)
		require.NoError(t, err)
		require.Equal(t, 3, all, "as the page says, it undoes nothing")

		require.Panics(t, func() { // the driver that users would take
			_, _ = ent.NewClient(ent.Driver(entsql.NewDriver(dialect.Postgres, conn))).Payment.Create().SetOrderID("1").AddRefunds(refund).Save(ctx)
		})
	})
}
