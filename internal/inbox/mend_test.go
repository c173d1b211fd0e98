package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// leavings are statements of a handler that leave its session in a state in which others cannot
// work.
var leavings = map[string]map[postbox.Dialect][]string{
	"read-only": {
		postbox.PostgreSQL: {"COMMIT", "SET default_transaction_read_only = on"},
		postbox.MySQL:      {"SET SESSION TRANSACTION READ ONLY"},
		postbox.SQLite:     {"PRAGMA query_only = 1"},
	},
	"no autocommit": {postbox.MySQL: {"SET autocommit = 0"}},
}

// eachLeaving runs a test with the statements of each kind that the database has.
func eachLeaving(t *testing.T, test func(t *testing.T, database *testdb.Database, statements []string)) {
	t.Helper()
	for name, leaving := range leavings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				if statements := leaving[database.Dialect]; statements != nil {
					test(t, database, statements)
				}
			})
		})
	}
}

// leave executes the statements in the transaction of the context, and fails.
func leave(ctx context.Context, statements []string) error {
	tx, _ := postbox.TxFromContext(ctx)
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return errors.New("the handler fails")
}

func TestStore_G3_a_handler_that_fails_leaves_no_session_that_cannot_write(t *testing.T) {
	t.Parallel()
	eachLeaving(t, func(t *testing.T, database *testdb.Database, statements []string) {
		b := newQueueBench(t, database)
		b.Pool.SetMaxOpenConns(1)
		b.requireMended(statements)
	})
}

// requireMended lets a handler fail, and another one have the connection after it.
func (b *queueBench) requireMended(statements []string) {
	b.T.Helper()
	_, err := b.Store.Once(b.T.Context(), inboxstore.Key{Consumer: "c", MessageID: "bad"}, func(ctx context.Context) error {
		return leave(ctx, statements)
	})
	require.Error(b.T, err)
	fresh, err := b.Store.Once(b.T.Context(), inboxstore.Key{Consumer: "c", MessageID: "good"}, func(ctx context.Context) error {
		return b.Effect(ctx, message.NewMessage("good", nil))
	})
	require.NoError(b.T, err)
	require.True(b.T, fresh)
	require.Equal(b.T, []string{"good"}, b.Effects())
}

// The database goes with the only connection to it.
func TestStore_G3_a_failing_handler_does_not_close_a_database_in_memory(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	database := &testdb.Database{Dialect: postbox.SQLite, DB: db}
	b := &queueBench{inboxtest.OnOneHandle(t, database)}
	b.requireMended(leavings["read-only"][postbox.SQLite])
}

// The pool has few connections, so each of them would soon be one that cannot write.
// Also covers G7.
func TestQueue_G3_a_handler_that_fails_leaves_no_session_that_cannot_write(t *testing.T) {
	t.Parallel()
	eachLeaving(t, func(t *testing.T, database *testdb.Database, statements []string) {
		b := newQueueBench(t, database)
		worker := b
		if database.Dialect != postbox.SQLite { // which has one connection
			worker = b.fewSessions()
		}
		ids := inboxtest.Numbers(30)
		b.Put("bad")
		b.Put(ids...)
		worker.Start(inboxtest.Quick(patient), func(msg *message.Message) error {
			if msg.UUID == "bad" {
				return leave(msg.Context(), statements)
			}
			return b.Effect(msg.Context(), msg)
		})
		b.Drained()
		require.ElementsMatch(t, ids, b.Effects())
		require.Equal(t, []string{"bad"}, b.Dead())
		require.Len(t, b.Failures(), 3)
	})
}
