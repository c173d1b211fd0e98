package transactions_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

type bunOrder struct {
	bun.BaseModel `bun:"table:orders"`

	ID string `bun:",pk"`
}

type bunPayment struct {
	bun.BaseModel `bun:"table:payments"`

	ID       int64 `bun:",pk,autoincrement"`
	OrderID  string
	RefundOf int64         `bun:"payment_refunds,nullzero"`
	Refunds  []*bunPayment `bun:"rel:has-many,join:id=payment_refunds"`
}

type bunShop struct{ db *bun.DB }

func openBun(_ *testing.T, database *testdb.Database) (shop, *sql.DB) {
	return bunShop{bun.NewDB(database.DB, bunDialect(database))}, database.DB
}

func bunDialect(database *testdb.Database) schema.Dialect {
	switch database.Dialect {
	case postbox.MySQL:
		return mysqldialect.New()
	case postbox.SQLite:
		return sqlitedialect.New()
	case postbox.PostgreSQL:
	}
	return pgdialect.New()
}

func (s bunShop) place(ctx context.Context, bus *cqrs.EventBus, id string) error {
	return s.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&bunOrder{ID: id}).Exec(ctx); err != nil {
			return err
		}
		return bus.Publish(postbox.ContextWithTx(ctx, tx), OrderPlaced{OrderID: id})
	})
}

func (s bunShop) pay(ctx context.Context, tx *sql.Tx, orderID string) error {
	_, err := s.db.NewInsert().Model(&bunPayment{OrderID: orderID}).Conn(tx).Exec(ctx)
	return err
}

// txOfContext lets each query of a bun.DB work in the transaction that its context carries.
type txOfContext struct{}

func (txOfContext) ResolveConn(ctx context.Context, _ bun.Query) bun.IConn {
	if tx, found := postbox.TxFromContext(ctx); found {
		return tx
	}
	return nil
}

func (txOfContext) Close() error { return nil }

type bunResolvedShop struct{ bunShop }

func openBunWithResolver(_ *testing.T, database *testdb.Database) (shop, *sql.DB) {
	return bunResolvedShop{bunShop{bun.NewDB(database.DB, bunDialect(database), bun.WithConnResolver(txOfContext{}))}}, database.DB
}

func (s bunResolvedShop) pay(ctx context.Context, _ *sql.Tx, orderID string) error {
	_, err := s.db.NewInsert().Model(&bunPayment{OrderID: orderID}).Exec(ctx)
	return err
}

// With one connection, which the transaction has, a statement elsewhere would wait for ever.
func TestBun_G4_relations_and_raw_statements_stay_in_the_transaction(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]bun.DBOption{"Conn": nil, "resolver": {bun.WithConnResolver(txOfContext{})}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := paymentsOnOneConnection(t)
			db := bun.NewDB(database.DB, pgdialect.New(), options...)
			inTxRolledBack(t, database, func(ctx context.Context, tx *sql.Tx) {
				var conn bun.IConn = tx
				if options != nil {
					conn = nil
				}
				payment := &bunPayment{OrderID: "1"}
				_, err := on(db.NewInsert().Model(payment), conn).Exec(ctx)
				require.NoError(t, err)
				_, err = on(db.NewInsert().Model(&bunPayment{OrderID: "1", RefundOf: payment.ID}), conn).Exec(ctx)
				require.NoError(t, err)
				var found []*bunPayment
				require.NoError(t, on(db.NewSelect().Model(&found).Where("payment_refunds IS NULL").Relation("Refunds"), conn).Scan(ctx))
				require.Len(t, found, 1)
				require.Len(t, found[0].Refunds, 1)
				_, err = on(db.NewRaw("UPDATE payments SET order_id = ?", "2"), conn).Exec(ctx)
				require.NoError(t, err)
			})
		})
	}
}

func on[Query interface{ Conn(db bun.IConn) Query }](query Query, conn bun.IConn) Query {
	if conn == nil {
		return query
	}
	return query.Conn(conn)
}
