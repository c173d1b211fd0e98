package transactions_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/transactions/ent"
)

// transaction is one that a library has begun.
type transaction struct {
	tx postbox.Executor // as a user hands it to Postbox
	// insert writes a row with the means of the library.
	insert           func(ctx context.Context, text string) error
	commit, rollback func() error
}

const insert = "INSERT INTO business VALUES ($1)"

// libraries begin a transaction each.
var libraries = map[string]func(t *testing.T, database *testdb.Database) transaction{
	"pgx": func(t *testing.T, database *testdb.Database) transaction {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), database.DSN)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		return transaction{
			tx: postbox.ExecFunc(tx.Exec),
			insert: func(ctx context.Context, text string) error {
				_, err := tx.Exec(ctx, insert, text)
				return err
			},
			commit:   func() error { return tx.Commit(context.Background()) },
			rollback: func() error { return tx.Rollback(context.Background()) },
		}
	},
	"gorm": func(t *testing.T, database *testdb.Database) transaction {
		t.Helper()
		return gormTransaction(t, database, false)
	},
	"gorm with prepared statements": func(t *testing.T, database *testdb.Database) transaction {
		t.Helper()
		return gormTransaction(t, database, true)
	},
	"bun": func(t *testing.T, database *testdb.Database) transaction {
		t.Helper()
		tx, err := bun.NewDB(database.DB, pgdialect.New()).BeginTx(t.Context(), nil)
		require.NoError(t, err)
		return transaction{
			tx: tx,
			insert: func(ctx context.Context, text string) error {
				_, err := tx.NewRaw("INSERT INTO business VALUES (?)", text).Exec(ctx)
				return err
			},
			commit: tx.Commit, rollback: tx.Rollback,
		}
	},
	"the driver of ent": func(t *testing.T, database *testdb.Database) transaction {
		t.Helper()
		tx, err := entsql.OpenDB(dialect.Postgres, database.DB).Tx(t.Context())
		require.NoError(t, err)
		return transaction{
			tx:     tx.(*entsql.Tx),
			insert: func(ctx context.Context, text string) error { return tx.Exec(ctx, insert, []any{text}, nil) },
			commit: tx.Commit, rollback: tx.Rollback,
		}
	},
	"ent, generated": func(t *testing.T, database *testdb.Database) transaction {
		t.Helper()
		tx, err := ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, database.DB))).Tx(t.Context())
		require.NoError(t, err)
		return transaction{
			tx: tx,
			insert: func(ctx context.Context, text string) error {
				_, err := tx.ExecContext(ctx, insert, text)
				return err
			},
			commit: tx.Commit, rollback: tx.Rollback,
		}
	},
	"ent without a feature": func(t *testing.T, database *testdb.Database) transaction {
		t.Helper()
		tx, err := entsql.OpenDB(dialect.Postgres, database.DB).Tx(t.Context())
		require.NoError(t, err)
		return transaction{
			tx: postbox.ExecFunc(func(ctx context.Context, query string, args ...any) (any, error) {
				return nil, tx.Exec(ctx, query, args, nil)
			}),
			insert: func(ctx context.Context, text string) error { return tx.Exec(ctx, insert, []any{text}, nil) },
			commit: tx.Commit, rollback: tx.Rollback,
		}
	},
	"sqlx": func(t *testing.T, database *testdb.Database) transaction {
		t.Helper()
		tx, err := sqlx.NewDb(database.DB, "postgres").BeginTxx(t.Context(), nil)
		require.NoError(t, err)
		return transaction{
			tx: tx,
			insert: func(ctx context.Context, text string) error {
				_, err := tx.NamedExecContext(ctx, "INSERT INTO business VALUES (:text)", map[string]any{"text": text})
				return err
			},
			commit: tx.Commit, rollback: tx.Rollback,
		}
	},
}

func gormTransaction(t *testing.T, database *testdb.Database, prepare bool) transaction {
	t.Helper()
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: database.DB}), &gorm.Config{PrepareStmt: prepare})
	require.NoError(t, err)
	tx := db.WithContext(t.Context()).Begin()
	require.NoError(t, tx.Error)
	return transaction{
		tx: tx.Statement.ConnPool,
		insert: func(_ context.Context, text string) error {
			return tx.Exec("INSERT INTO business VALUES (?)", text).Error
		},
		commit:   func() error { return tx.Commit().Error },
		rollback: func() error { return tx.Rollback().Error },
	}
}

// Placed is an event.
type Placed struct{ ID string }

// In each library: what is published in its transaction is there if and only if that commits, by
// Bind, by the context and by a CQRS bus, also where nobody has registered the outbox before.
func TestTransactions_G1_of_other_libraries(t *testing.T) {
	t.Parallel()
	for name, begin := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.Postgres(t).Migrate(t)
			database.Exec(t, "CREATE TABLE business (text VARCHAR(20) NOT NULL)")
			outbox, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, outbox.Close()) })
			for round, commits := range []bool{false, true, true} {
				opened := begin(t, database)
				require.NoError(t, opened.insert(t.Context(), fmt.Sprint(round)))
				require.NoError(t, publishAll(t, outbox, opened.tx, round))
				if commits {
					require.NoError(t, opened.commit())
				} else {
					require.NoError(t, opened.rollback())
				}
			}
			require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM business"))
			require.Equal(t, []string{"bound 1", "bus 1", "first 1", "second 1", "bound 2", "bus 2", "first 2", "second 2"}, forwarded(t, database, 8))
		})
	}
}

// publishAll publishes in each of the ways.
func publishAll(t *testing.T, outbox *forwarder.Publisher, tx postbox.Executor, round int) error {
	t.Helper()
	newMessage := func(id string) *message.Message {
		msg := message.NewMessage(fmt.Sprint(id, " ", round), []byte("{}"))
		msg.Metadata.Set(postbox.MetadataOrderingKey, "key")
		return msg
	}
	ctx := postbox.ContextWithTx(t.Context(), tx)
	bus, err := cqrs.NewEventBusWithConfig(outbox, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "orders", nil },
		OnPublish: func(params cqrs.OnEventSendParams) error {
			params.Message.UUID = fmt.Sprint("bus ", round)
			params.Message.Metadata.Set(postbox.MetadataOrderingKey, "key")
			return nil
		},
		Marshaler: cqrs.JSONMarshaler{},
	})
	require.NoError(t, err)
	first, second := newMessage("first"), newMessage("second")
	first.SetContext(ctx)
	second.SetContext(ctx)
	return errors.Join(
		outbox.Bind(tx).Publish("orders", newMessage("bound")),
		bus.Publish(ctx, Placed{ID: "1"}),
		outbox.Publish("orders", first, second),
	)
}

// forwarded runs a forwarder until it has published so many messages, and returns their ids in that
// order.
func forwarded(t *testing.T, database *testdb.Database, wanted int) (ids []string) {
	t.Helper()
	sent := make(chan string, 2*wanted)
	fwd, err := forwarder.New(database.Postbox(), broker{sent}, forwarder.Config{}, nil)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.Background()) }()
	for range wanted {
		select {
		case id := <-sent:
			ids = append(ids, id)
		case <-time.After(time.Minute):
			require.FailNow(t, "messages are missing", "%v", ids)
		}
	}
	require.NoError(t, fwd.Close())
	require.NoError(t, <-ended)
	require.Empty(t, sent, "nothing of the transaction that was rolled back")
	return ids
}

// broker is where the forwarder publishes to.
type broker struct{ sent chan<- string }

func (b broker) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		b.sent <- msg.UUID
	}
	return nil
}

func (broker) Close() error { return nil }

// InTx joins a transaction of a library that embeds a *sql.Tx, and refuses to work beside others.
func TestTransactions_G1_InTx_joins_or_refuses_those_of_other_libraries(t *testing.T) {
	t.Parallel()
	for name, begin := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.Postgres(t)
			database.Exec(t, "CREATE TABLE business (text VARCHAR(20) NOT NULL)")
			opened := begin(t, database)
			err := postbox.InTx(postbox.ContextWithTx(t.Context(), opened.tx), database.DB, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, insert, "1")
				return err
			})
			if name == "pgx" || name == "ent without a feature" || name == "ent, generated" {
				require.ErrorIs(t, err, postbox.ErrNoTransaction)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, opened.rollback())
			require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM business"))
		})
	}
}

// A pool of a library stands where the transaction should be: each message would be committed by
// itself.
func TestTransactions_G1_pools_of_other_libraries_are_refused(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	outbox, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, outbox.Close()) })
	plain, err := gorm.Open(postgres.New(postgres.Config{Conn: database.DB}), &gorm.Config{})
	require.NoError(t, err)
	preparing, err := gorm.Open(postgres.New(postgres.Config{Conn: database.DB}), &gorm.Config{PrepareStmt: true})
	require.NoError(t, err)
	conn, err := bun.NewDB(database.DB, pgdialect.New()).Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	for name, pool := range map[string]postbox.Executor{
		"gorm":                          plain.Statement.ConnPool,
		"gorm with prepared statements": preparing.Statement.ConnPool,
		"bun":                           bun.NewDB(database.DB, pgdialect.New()),
		"a connection of bun":           conn,
		"ent":                           entsql.OpenDB(dialect.Postgres, database.DB),
		"sqlx":                          sqlx.NewDb(database.DB, "postgres"),
		"database/sql":                  database.DB,
		"a bun.Tx that has not begun":   bun.Tx{},
		"a sqlx.Tx that has not begun":  &sqlx.Tx{},
		"no transaction":                (*sql.Tx)(nil),
	} {
		require.ErrorIs(t, outbox.Bind(pool).Publish("orders", message.NewMessage("1", nil)), postbox.ErrNoTransaction, name)
		msg := message.NewMessage("1", nil)
		msg.SetContext(postbox.ContextWithTx(t.Context(), pool))
		require.ErrorIs(t, outbox.Publish("orders", msg), postbox.ErrNoTransaction, name)
	}
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
}
