package inboxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
)

var key = inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: "1"}

func withEffects(t *testing.T, database *testdb.Database) *testdb.Database {
	t.Helper()
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (id VARCHAR(100))")
	return database
}

func effects(t *testing.T, database *testdb.Database) int {
	t.Helper()
	return database.Count(t, "SELECT COUNT(*) FROM effects")
}

// effect is a handler that writes through the transaction in its context, and then returns err.
func effect(t *testing.T, err error) func(ctx context.Context) error {
	t.Helper()
	return func(ctx context.Context) error {
		tx, ok := postbox.TxFromContext(ctx)
		if !ok {
			return errors.New("no transaction in the context")
		}
		if _, execErr := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('x')"); execErr != nil {
			t.Errorf("write effect: %s", execErr)
		}
		return err
	}
}

// Also covers F2 and F7.
func TestStore_G4_handles_a_message_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, nil)

		fresh, err := store.Once(t.Context(), key, effect(t, inboxtest.ErrHandler))
		require.ErrorIs(t, err, inboxtest.ErrHandler)
		var failure *inboxstore.HandlerError
		require.ErrorAs(t, err, &failure)
		require.False(t, fresh)
		require.Zero(t, effects(t, database), "a failed handler leaves no trace")

		for i := range 3 {
			fresh, err = store.Once(t.Context(), key, effect(t, nil))
			require.NoError(t, err)
			require.Equal(t, i == 0, fresh)
		}
		require.Equal(t, 1, effects(t, database))
		require.Panics(t, func() {
			_, _ = store.Once(t.Context(), inboxstore.Key{Consumer: "c", MessageID: "panic"}, func(ctx context.Context) error {
				_ = effect(t, nil)(ctx)
				panic("oh")
			})
		})
		require.Equal(t, 1, effects(t, database))
	})
}

func TestStore_F6_copies_at_the_same_instant_in_several_processes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		const processes, rounds = 6, 15
		stores := make([]*inboxstore.Store, processes)
		for i := range stores {
			stores[i] = inboxtest.StoreFor(t, database, database.Open(t), nil)
		}
		for round := range rounds {
			id := inboxstore.Key{Consumer: "c", Topic: "t", MessageID: postbox.NewMessageID()}
			var ran, processed atomic.Int32
			var wg sync.WaitGroup
			for i, store := range stores {
				wg.Go(func() {
					fresh, err := store.Once(t.Context(), id, func(ctx context.Context) error {
						if ran.Add(1) == 1 && round%3 == 0 {
							_ = effect(t, nil)(ctx)
							return inboxtest.ErrHandler // the first one fails: another one takes its turn
						}
						return effect(t, nil)(ctx)
					})
					if !errors.Is(err, inboxtest.ErrHandler) {
						require.NoError(t, err, "process %d", i)
					}
					if fresh {
						processed.Add(1)
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 1, processed.Load(), "round %d", round)
			require.Equal(t, round+1, effects(t, database))
		}
	})
}

func TestStore_F21_same_id_for_another_consumer_or_on_another_topic(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		long := strings.Repeat("x", 1000)
		keys := []inboxstore.Key{
			{Consumer: "a", Topic: "t", MessageID: "1"},
			{Consumer: "b", Topic: "t", MessageID: "1"},
			{Consumer: "a", Topic: "u", MessageID: "1"},
			{Consumer: "at", Topic: "", MessageID: "1"},
			{Consumer: "a", Topic: "t", MessageID: "01"},
			{Consumer: "a", Topic: "t", MessageID: long},
			{Consumer: "a", Topic: "t", MessageID: long + "y"},
			{Consumer: "a", Topic: "t", MessageID: "\x00\xff"},
			{Consumer: "a", Topic: "t", MessageID: "ABC"},
			{Consumer: "a", Topic: "t", MessageID: "abc"},
			{Consumer: "a", Topic: "t", MessageID: "018f4d2e-7c1a-7000-8000-000000000001"},
			{Consumer: "a", Topic: "t", MessageID: "018F4D2E-7C1A-7000-8000-000000000001"},
			{Consumer: "a", Topic: "t", MessageID: "\x01\x8f\x4d\x2e\x7c\x1a\x70\x00\x80\x00\x00\x00\x00\x00\x00\x01"},
			{Consumer: "a", Topic: "t", MessageID: "01HX6JWZ0T0000000000000001"},
			{Consumer: "a", Topic: "t", MessageID: "01hx6jwz0t0000000000000001"},
		}
		for _, k := range append(keys, keys...) {
			_, err := store.Once(t.Context(), k, effect(t, nil))
			require.NoError(t, err)
		}
		require.Equal(t, len(keys), effects(t, database))
	})
}

func TestStore_in_a_savepoint_that_is_rolled_back_AfterCommit_functions_do_not_run(t *testing.T) {
	t.Parallel()
	database := withEffects(t, testdb.SQLite(t))
	store := inboxtest.StoreFor(t, database, database.DB, nil)
	ran := []error{}
	require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
		for _, fails := range []error{inboxtest.ErrHandler, nil} {
			_, err := store.Once(ctx, key, func(ctx context.Context) error {
				require.True(t, postbox.AfterCommit(ctx, func() { ran = append(ran, fails) }))
				return fails
			})
			require.ErrorIs(t, err, fails)
		}
		return nil
	}))
	require.Equal(t, []error{nil}, ran)
}

func TestStore_joins_the_transaction_in_the_context(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		database.DB.SetMaxOpenConns(1) // G10: it opens no other connection
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		run := func(commit bool) (fresh bool) {
			tx, err := database.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			ctx := postbox.ContextWithTx(t.Context(), tx)
			_, err = store.Once(ctx, key, effect(t, inboxtest.ErrHandler))
			require.ErrorIs(t, err, inboxtest.ErrHandler)
			_, err = store.Once(ctx, key, func(ctx context.Context) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO no_such_table VALUES (1)")
				return err
			})
			require.Error(t, err)
			attempts, err := store.RecordFailure(ctx, key, inboxtest.ErrHandler)
			require.NoError(t, err)
			require.Equal(t, 1, attempts)
			fresh, err = store.Once(ctx, key, func(ctx context.Context) error {
				nested, err := store.Once(ctx, inboxstore.Key{Consumer: "nested", MessageID: "1"}, effect(t, nil))
				require.True(t, nested)
				return err
			})
			require.NoError(t, err)
			again, err := store.Once(ctx, key, effect(t, nil))
			require.NoError(t, err)
			require.False(t, again)
			if commit {
				require.NoError(t, tx.Commit())
			} else {
				require.NoError(t, tx.Rollback())
			}
			return fresh
		}
		require.True(t, run(false))
		require.Zero(t, effects(t, database), "the owner rolled back")
		require.True(t, run(true))
		require.Equal(t, 1, effects(t, database))
	})
}

func TestStore_G10_one_connection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		database.DB.SetMaxOpenConns(1)
		store := inboxtest.StoreFor(t, database, database.DB, func(c *inboxstore.Config) { c.CacheSize = 0 })
		for range 3 {
			_, err := store.Once(t.Context(), inboxstore.Key{Consumer: "c", MessageID: postbox.NewMessageID()}, effect(t, nil))
			require.NoError(t, err)
		}
		require.Equal(t, 3, effects(t, database))
	})
}

func TestStore_G12_handler_outlives_the_cancelled_delivery_and_is_committed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, func(c *inboxstore.Config) { c.CloseTimeout = 300 * time.Millisecond })
		ctx, cancel := context.WithCancel(t.Context())
		fresh, err := store.Once(ctx, key, func(ctx context.Context) error {
			cancel()
			require.NoError(t, ctx.Err())
			return effect(t, nil)(ctx)
		})
		require.NoError(t, err)
		require.True(t, fresh)
		require.Equal(t, 1, effects(t, database))

		ctx, cancel = context.WithCancel(t.Context())
		_, err = store.Once(ctx, inboxstore.Key{Consumer: "slow", MessageID: "1"}, func(ctx context.Context) error {
			cancel()
			<-ctx.Done() // after the close timeout
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A claim waits for the transaction that has claimed the same key, which may be anybody's and take
// any time.
func TestStore_G12_a_claim_that_waits_ends_with_the_close_timeout(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, func(c *inboxstore.Config) { c.CloseTimeout = 100 * time.Millisecond })
		for range 2 { // the statement is prepared by the second time
			tx, err := database.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = store.Once(postbox.ContextWithTx(t.Context(), tx), key, effect(t, nil))
			require.NoError(t, err)

			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := store.Once(ctx, key, effect(t, nil))
				ended <- err
			}()
			waitingClaim(t, database)
			cancel()
			select {
			case err := <-ended:
				require.ErrorContains(t, err, "claim message")
			case <-time.After(inboxtest.Patience):
				require.Fail(t, "the claim still waits")
			}
			require.NoError(t, tx.Rollback())
			require.Eventually(t, func() bool { // else the next round would find this one
				_, waits := findWaitingClaim(t, database)
				return !waits
			}, inboxtest.Patience, 5*time.Millisecond)
		}
		require.Zero(t, effects(t, database))
	})
}

func TestStore_conflicts_are_run_again(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		database := withEffects(t, open(t))
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		runs := 0
		fresh, err := store.Once(t.Context(), key, func(ctx context.Context) error {
			tx, _ := postbox.TxFromContext(ctx)
			if runs++; runs < 3 { // the server itself raises the code, as it does in a conflict
				raise := "DO $$ BEGIN RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001'; END $$"
				if database.Dialect == postbox.MySQL {
					raise = "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt'"
				}
				_, err := tx.ExecContext(ctx, raise)
				return err
			}
			return effect(t, nil)(ctx)
		})
		require.NoError(t, err)
		require.True(t, fresh)
		require.Equal(t, 3, runs)
		require.Equal(t, 1, effects(t, database))
	}
}

// What the server refuses at the commit is the handler's failure: it must count, or it would come
// for ever.
func TestStore_G4_a_refused_commit_is_a_failure_of_the_handler(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		if database.Dialect != postbox.PostgreSQL {
			return // the others neither abort a transaction by a statement nor check a constraint at its end
		}
		withEffects(t, database)
		database.Exec(t, "CREATE TABLE parents (id INTEGER PRIMARY KEY)")
		database.Exec(t, "CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		for name, statement := range map[string]string{
			"overlooked": "INSERT INTO no_such_table VALUES (1)", "deferred": "INSERT INTO children VALUES (1)",
		} {
			fresh, err := store.Once(t.Context(), inboxstore.Key{Consumer: name, MessageID: "1"}, func(ctx context.Context) error {
				tx, _ := postbox.TxFromContext(ctx)
				_, _ = tx.ExecContext(ctx, statement) // the handler looks away
				return nil
			})
			require.False(t, fresh)
			var failure *inboxstore.HandlerError
			require.ErrorAs(t, err, &failure, name)
			require.NotErrorIs(t, err, postbox.ErrCommitUnknown)
		}
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
	})
}

func TestNew_bad_input_says_what_to_do(t *testing.T) {
	t.Parallel()
	_, err := inboxstore.New(postbox.Database{DB: testdb.SQLite(t).DB}, inboxstore.Config{CloseTimeout: -1}, nil)
	require.ErrorContains(t, err, "dialect is missing")
	require.ErrorContains(t, err, "CloseTimeout")
	_, err = inboxstore.New(postbox.Database{DB: testdb.SQLite(t).DB, Dialect: postbox.MySQL, Schema: "other"}, inboxstore.Config{}, nil)
	require.ErrorContains(t, err, `Schema "other": MySQL and MariaDB have no schemas`)
	_, err = inboxstore.New(postbox.Database{DB: nil}, inboxstore.Config{}, nil)
	require.Error(t, err)
}

func TestOnce_reports_each_delivery_as_what_it_was(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	var mu sync.Mutex
	reported := map[string]float64{}
	described := database.Postbox()
	described.Metrics = instruments.RecorderFunc(func(i *metrics.Instrument, value float64, labels ...string) {
		mu.Lock()
		defer mu.Unlock()
		if i == instruments.Deliveries {
			reported[labels[2]] += value
		}
	})
	store, err := inboxstore.New(described, inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	key := inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: "1"}

	require.Panics(t, func() {
		_, _ = store.Once(t.Context(), key, func(context.Context) error { panic("nothing is handled") })
	})
	require.Equal(t, map[string]float64{"failed": 1}, reported)
	nested := func(ctx context.Context) error { // two inboxes around one handler
		_, err := store.Once(ctx, key, func(context.Context) error { return nil })
		return err
	}
	for range 2 {
		_, err = store.Once(t.Context(), key, nested)
		require.NoError(t, err)
	}
	require.Equal(t, map[string]float64{"failed": 1, "handled": 1, "duplicate": 1}, reported)
}
