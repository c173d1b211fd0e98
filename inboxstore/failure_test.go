package inboxstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestStore_F14_attempts_are_counted_over_all_processes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		one, two := inboxtest.StoreFor(t, database, database.DB, nil), inboxtest.StoreFor(t, database, database.Open(t), nil)
		for i := range 6 {
			store := one
			if i%2 == 1 {
				store = two
			}
			attempts, err := store.RecordFailure(t.Context(), key, fmt.Errorf("failure %d\x00\xff", i))
			require.NoError(t, err)
			require.Equal(t, i+1, attempts)
		}
		other, err := one.RecordFailure(t.Context(), inboxstore.Key{Consumer: "other", Topic: "orders", MessageID: "1"}, inboxtest.ErrHandler)
		require.NoError(t, err)
		require.Equal(t, 1, other)
		require.Equal(t, 7, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	})
}

func TestStore_a_failure_is_recorded_although_the_delivery_was_cancelled(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	attempts, err := inboxtest.StoreFor(t, database, database.DB, nil).RecordFailure(ctx, key, inboxtest.ErrHandler)
	require.NoError(t, err)
	require.Equal(t, 1, attempts)
}

func TestStore_bury_claims_the_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		withEffects(t, database)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		msg := message.NewMessage("1", nil)
		msg.Metadata.Set("partition_key", "customer 7")
		var wg sync.WaitGroup
		for range 4 { // F22: whoever comes second finds it dead
			wg.Go(func() {
				if err := store.Bury(t.Context(), key, msg, 15, inboxtest.ErrHandler); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE attempts = 15"))
		fresh, err := store.Once(t.Context(), key, effect(t, nil))
		require.NoError(t, err)
		require.False(t, fresh, "a dead message is not handled again")
		require.Zero(t, effects(t, database))

		handled := inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: "handled"}
		_, err = store.Once(t.Context(), handled, effect(t, nil))
		require.NoError(t, err)
		require.NoError(t, store.Bury(t.Context(), handled, msg, 15, inboxtest.ErrHandler))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"), "what was handled meanwhile is not dead")
	})
}

// The database does not store the dead letter, and reports no error. Then the message is not
// claimed either, so it comes again.
func TestStore_G2_a_message_whose_dead_letter_is_not_stored_is_not_claimed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		table := ""
		switch database.Dialect {
		case postbox.MySQL:
			return // a trigger there can only raise an error
		case postbox.PostgreSQL:
			table = " ON postbox_dead_letters"
			database.Migrate(t)
			database.Exec(t, "CREATE FUNCTION ignored() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
			database.Exec(t, "CREATE TRIGGER ignored BEFORE INSERT ON postbox_dead_letters FOR EACH ROW EXECUTE FUNCTION ignored()")
		case postbox.SQLite:
			database.Migrate(t)
			database.Exec(t, "CREATE TRIGGER ignored BEFORE INSERT ON postbox_dead_letters BEGIN SELECT RAISE(IGNORE); END")
		}
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		msg := message.NewMessage("1", nil)
		require.ErrorIs(t, store.Bury(t.Context(), key, msg, 15, inboxtest.ErrHandler), spool.ErrNoLetter)
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
		database.Exec(t, "DROP TRIGGER ignored"+table)
		require.NoError(t, store.Bury(t.Context(), key, msg, 15, inboxtest.ErrHandler))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
	})
}

// What Postbox itself writes must not depend on the isolation that the database has by default:
// copies of a message that fail at the same instant each count.
func TestStore_G7_counts_failures_at_any_default_isolation_level(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				if database.Dialect != postbox.PostgreSQL {
					return // REPEATABLE READ is MySQL's default
				}
				database.Migrate(t)
				store := inboxtest.StoreFor(t, database, withIsolation(t, database, level), nil)
				const copies = 8
				var mu sync.Mutex
				var want, got []int
				var wg sync.WaitGroup
				for i := range copies {
					want = append(want, i+1)
					wg.Go(func() {
						attempts, err := store.RecordFailure(t.Context(), key, inboxtest.ErrHandler)
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

func TestBury_stores_why_the_message_died(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		store := inboxtest.StoreFor(t, database, database.DB, nil)
		for i, err := range []error{inboxtest.ErrHandler, fmt.Errorf("no such account: %w", postbox.Permanent(inboxtest.ErrHandler))} {
			msg := message.NewMessage(fmt.Sprint(i), nil)
			require.NoError(t, store.Bury(t.Context(), inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: msg.UUID}, msg, 15, err))
		}
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE message_id = ? AND cause = ?", []byte("0"), int(dialect.CauseAttempts)))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE message_id = ? AND cause = ?", []byte("1"), int(dialect.CausePermanent)))
	})
}
