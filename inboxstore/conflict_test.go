package inboxstore_test

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// raiseConflict lets the server itself raise the code of a serialization failure, or of a deadlock.
func raiseConflict(ctx context.Context, dialect postbox.Dialect) error {
	tx, _ := postbox.TxFromContext(ctx)
	raise := "DO $$ BEGIN RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001'; END $$"
	if dialect == postbox.MySQL {
		raise = "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt'"
	}
	_, err := tx.ExecContext(ctx, raise)
	return err
}

// manyConflicts are more than the tries at once of each attempt that a message has.
const manyConflicts = 20

// However often a message conflicts with others, it is neither an attempt nor an outage: others go on, and in the end it is done.
func TestQueue_G7_conflicts_beyond_the_tries_count_nothing_and_pause_nobody(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*inboxstore.QueueConfig){
		"single": transactional, "micro-batch": func(c *inboxstore.QueueConfig) { c.MicroBatch = 3 },
		"not transactional": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.put("a/1", "a/2", "b/1", "c/1")
				var conflicts atomic.Int32
				var order journal
				b.start(quick(change), func(msg *message.Message) error {
					ctx := msg.Context()
					if change == nil {
						tx, err := b.db.BeginTx(ctx, nil)
						if err != nil {
							return err
						}
						defer func() { _ = tx.Rollback() }()
						ctx = postbox.ContextWithTx(ctx, tx)
						defer order.add(msg.UUID)
					} else if err := b.effect(ctx, msg); err != nil {
						return err
					}
					if msg.UUID == "a/1" && conflicts.Add(1) <= manyConflicts {
						return raiseConflict(ctx, b.Dialect)
					}
					return nil
				})
				b.drained()
				if change != nil {
					require.ElementsMatch(t, []string{"a/1", "a/2", "b/1", "c/1"}, b.effects())
					require.Equal(t, []string{"a/1", "a/2"}, ofKey(b.effects(), "a"))
				}
				require.Empty(t, b.failures())
				require.Empty(t, b.dead())
			})
		})
	}
}

func TestBatch_G7_conflicts_beyond_the_tries_count_nothing(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put(numbers(6)...)
		var conflicts atomic.Int32
		b.batch(quickBatch(func(c *inboxstore.BatchConfig) { c.QueueConfig.Transactional = true }),
			func(ctx context.Context, messages []*message.Message) error {
				if err := b.batchEffects(ctx, messages); err != nil {
					return err
				}
				if oneOf(messages, []string{"003"}) && conflicts.Add(1) <= manyConflicts {
					return raiseConflict(ctx, b.Dialect)
				}
				return nil
			})
		b.drained()
		require.ElementsMatch(t, numbers(6), b.effects())
		require.Empty(t, b.failures())
	})
}

// places are where an inbox may be: in a transaction of its own, or in one of somebody else.
func (b *queueBench) places() map[string]func(fn func(ctx context.Context) error) error {
	return map[string]func(fn func(ctx context.Context) error) error{
		"own": func(fn func(ctx context.Context) error) error { return fn(b.t.Context()) },
		"joined": func(fn func(ctx context.Context) error) error {
			tx, err := b.db.BeginTx(b.t.Context(), nil)
			require.NoError(b.t, err)
			defer func() { require.NoError(b.t, tx.Rollback()) }()
			return fn(postbox.ContextWithTx(b.t.Context(), tx))
		},
	}
}

// Whoever calls the store must not count a conflict, so it is not the handler's error.
func TestStore_G7_conflicts_beyond_the_tries_are_no_failure_of_the_handler(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		for name, within := range b.places() {
			err := within(func(ctx context.Context) error {
				_, err := b.store.Once(ctx, key, func(ctx context.Context) error { return raiseConflict(ctx, b.Dialect) })
				return err
			})
			var failure *inboxstore.HandlerError
			require.Error(t, err, name)
			require.NotErrorAs(t, err, &failure, name)
			require.ErrorContains(t, err, "Konflikt", name)
		}
	})
}

// What Postbox itself writes must not depend on the isolation that the database has by default: copies of a message that fail at the
// same instant each count.
func TestStore_G7_failures_count_whatever_the_default_isolation_is(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				if database.Dialect != postbox.PostgreSQL {
					return // REPEATABLE READ is MySQL's default
				}
				database.Migrate(t)
				store := storeFor(t, database, withIsolation(t, database, level), nil)
				const copies = 8
				var mu sync.Mutex
				var want, got []int
				var wg sync.WaitGroup
				for i := range copies {
					want = append(want, i+1)
					wg.Go(func() {
						attempts, err := store.RecordFailure(t.Context(), key, errHandler)
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						got = append(got, attempts)
					})
				}
				wg.Wait()
				require.ElementsMatch(t, want, got)
				require.Equal(t, copies, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
			})
		})
	}
}

// withIsolation returns a handle whose transactions have that level where they ask for none.
func withIsolation(t *testing.T, database *testdb.Database, level string) *sql.DB {
	t.Helper()
	address, err := url.Parse(database.DSN)
	require.NoError(t, err)
	query := address.Query()
	query.Set("default_transaction_isolation", level)
	address.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // pgx takes a plus as it is
	with := *database
	with.DSN = address.String()
	return with.Open(t)
}
