package transactions_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

type gormOrder struct{ ID string }

func (gormOrder) TableName() string { return "orders" }

type gormPayment struct {
	ID             int64
	OrderID        string
	PaymentRefunds *int64
	Refunds        []gormPayment `gorm:"foreignKey:PaymentRefunds"`
}

func (gormPayment) TableName() string { return "payments" }

// AfterCreate is a hook of gorm, and works in the transaction as well.
func (gormPayment) AfterCreate(tx *gorm.DB) error { return tx.Exec("SELECT 1").Error }

type gormShop struct{ orm *gorm.DB }

func openGorm(prepare bool) func(t *testing.T, database *testdb.Database) (shop, *sql.DB) {
	return func(t *testing.T, database *testdb.Database) (shop, *sql.DB) {
		t.Helper()
		config := &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard}
		switch database.Dialect {
		case postbox.MySQL:
			orm, err := gorm.Open(mysql.New(mysql.Config{Conn: database.DB}), config)
			require.NoError(t, err)
			return gormShop{orm}, database.DB
		case postbox.SQLite:
			orm, err := gorm.Open(sqlite.New(sqlite.Config{Conn: database.DB}), config)
			require.NoError(t, err)
			return gormShop{orm}, database.DB
		case postbox.PostgreSQL:
		}
		orm, err := gorm.Open(postgres.Open(database.DSN), config)
		require.NoError(t, err)
		db, err := orm.DB()
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return gormShop{orm}, db
	}
}

func (s gormShop) place(ctx context.Context, bus *cqrs.EventBus, id string) error {
	return s.orm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&gormOrder{ID: id}).Error; err != nil {
			return err
		}
		return bus.Publish(postbox.ContextWithTx(ctx, tx.Statement.ConnPool), OrderPlaced{OrderID: id})
	})
}

func (s gormShop) pay(ctx context.Context, tx *sql.Tx, orderID string) error { // ctx is msg.Context()
	return gormIn(ctx, s.orm, tx).Create(&gormPayment{OrderID: orderID}).Error
}

// gormIn returns a session of gorm that works in tx. Without the context, Session would not copy
// the statement, and all of gorm would work in tx from then on.
func gormIn(ctx context.Context, orm *gorm.DB, tx *sql.Tx) *gorm.DB {
	session := orm.Session(&gorm.Session{NewDB: true, Context: ctx})
	session.Statement.ConnPool = tx
	return session
}

// With one connection, which the transaction has, a statement elsewhere would wait for ever.
func TestGorm_G4_nothing_escapes_the_transaction(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*gorm.Config{
		"default":             {},
		"prepared statements": {PrepareStmt: true},
		"no default transaction, full associations": {SkipDefaultTransaction: true, FullSaveAssociations: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config.Logger = logger.Discard
			database := paymentsOnOneConnection(t)
			orm, err := gorm.Open(postgres.New(postgres.Config{Conn: database.DB}), config)
			require.NoError(t, err)
			inTxRolledBack(t, database, func(ctx context.Context, tx *sql.Tx) {
				session := gormIn(ctx, orm, tx)
				workWithGorm(ctx, t, session)
				workWithGorm(ctx, t, session.Session(&gorm.Session{PrepareStmt: true}))
				require.ErrorIs(t, session.Begin().Error, gorm.ErrInvalidTransaction, "it cannot begin another one")
			})
			require.NoError(t, orm.WithContext(t.Context()).Create(&gormPayment{OrderID: "3"}).Error, "gorm itself is as before")
			require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM payments"))
		})
	}
}

func workWithGorm(ctx context.Context, t *testing.T, session *gorm.DB) {
	t.Helper()
	payment := &gormPayment{OrderID: "1", Refunds: []gormPayment{{OrderID: "1"}, {OrderID: "1"}}}
	require.NoError(t, session.Create(payment).Error)
	var found gormPayment
	require.NoError(t, session.Preload("Refunds").First(&found, payment.ID).Error)
	require.Len(t, found.Refunds, 2)
	require.NoError(t, session.Model(&found).Association("Refunds").Append(&gormPayment{OrderID: "1"}))
	require.NoError(t, session.Where("order_id = ?", "9").FirstOrCreate(&gormPayment{OrderID: "9"}).Error)
	require.NoError(t, session.CreateInBatches([]gormPayment{{OrderID: "1"}, {OrderID: "1"}, {OrderID: "1"}}, 2).Error)
	require.NoError(t, session.WithContext(ctx).Exec("UPDATE payments SET order_id = ?", "2").Error)
	require.ErrorIs(t, session.Transaction(func(inner *gorm.DB) error {
		return errors.Join(inner.Exec("DELETE FROM payments").Error, errPlanned)
	}), errPlanned)
	rows, err := session.Model(&gormPayment{}).Where("order_id = ?", "2").Rows()
	require.NoError(t, err)
	require.True(t, rows.Next(), "the inner transaction was a savepoint, and is rolled back")
	require.NoError(t, errors.Join(rows.Err(), rows.Close())) //nolint:sqlclosecheck // before the next statement
}

// What the page warns of: these leave the transaction.
func TestGorm_connection_is_another_one(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	orm, err := gorm.Open(postgres.New(postgres.Config{Conn: database.DB}), &gorm.Config{})
	require.NoError(t, err)
	require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
		var own, other int
		session := gormIn(ctx, orm, tx)
		err := errors.Join(
			session.Raw("SELECT pg_backend_pid()").Scan(&own).Error,
			session.Connection(func(orm *gorm.DB) error { return orm.Raw("SELECT pg_backend_pid()").Scan(&other).Error }),
		)
		require.NotEqual(t, own, other)
		return err
	}))
}

// paymentsOnOneConnection is a database with the table of payments.
func paymentsOnOneConnection(t *testing.T) *testdb.Database {
	t.Helper()
	database := testdb.Postgres(t)
	database.Exec(t, "CREATE TABLE payments (id bigserial PRIMARY KEY, order_id text NOT NULL, payment_refunds bigint REFERENCES payments)")
	database.DB.SetMaxOpenConns(1)
	return database
}

// inTxRolledBack does the work in a transaction that is rolled back.
func inTxRolledBack(t *testing.T, database *testdb.Database, work func(ctx context.Context, tx *sql.Tx)) {
	t.Helper()
	require.ErrorIs(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
		work(ctx, tx)
		return errPlanned
	}), errPlanned)
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM payments"))
}
