package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Each driver has another error for a commit after its context has ended.
func TestInTx_a_context_that_ends_before_the_commit_is_one_error_on_each_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20) NOT NULL)")
		insert := func(ctx context.Context, tx *sql.Tx) {
			_, err := tx.ExecContext(ctx, "INSERT INTO business VALUES ('a')")
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := forwarder.InTx(ctx, database.DB, func(ctx context.Context, tx *sql.Tx) error {
			insert(ctx, tx)
			cancel()
			return nil
		})
		require.EqualError(t, err, "commit: context canceled")
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, postbox.ErrCommitUnknown)

		ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err = forwarder.InTx(ctx, database.DB, func(ctx context.Context, tx *sql.Tx) error {
			insert(context.WithoutCancel(ctx), tx)
			<-ctx.Done()
			return nil
		})
		require.EqualError(t, err, "commit: context deadline exceeded")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM business"), "it is rolled back")
	})
}

// The server rolls back all of the transaction, and then commits each statement by itself.
func TestInTx_G1_a_deadlock_that_a_function_passes_over_is_an_error(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "CREATE TABLE accounts (id INT NOT NULL PRIMARY KEY, balance INT NOT NULL)")
		database.Exec(t, "INSERT INTO accounts VALUES (1, 0), (2, 0)")
		publisher := publisherFor(t, database, nil)
		other, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = other.Rollback() }()
		const update = "UPDATE accounts SET balance = balance + 1 WHERE id = "
		for range 20 { // the server ends the transaction that has done less
			_, err = other.ExecContext(t.Context(), update+"2")
			require.NoError(t, err)
			_, err = other.ExecContext(t.Context(), "INSERT INTO postbox_claims (claim_key, claimed_at) VALUES ("+
				map[postbox.Dialect]string{postbox.MySQL: "UUID(), 0)", postbox.PostgreSQL: "decode(md5(random()::text), 'hex'), 0)"}[database.Dialect])
			require.NoError(t, err)
		}
		waits := make(chan error, 1)
		err = forwarder.InTx(t.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, update+"1"); err != nil {
				return err
			}
			go func() {
				_, err := other.ExecContext(context.WithoutCancel(ctx), update+"1")
				waits <- err
			}()
			if _, err := tx.ExecContext(ctx, update+"2"); err == nil {
				return errors.New("there was no deadlock")
			}
			msg := newMessage("a", "")
			msg.SetContext(ctx)
			err := publisher.Publish("orders", msg)
			if database.Dialect == postbox.MySQL { // PostgreSQL refuses it
				require.NoError(t, err)
			}
			return nil
		})
		require.NoError(t, <-waits)
		require.Error(t, err)
		if database.Dialect == postbox.MySQL {
			require.ErrorIs(t, err, postbox.ErrCommitUnknown)
			require.ErrorContains(t, err, "deadlock")
		}
	})
}

// On SQLite the commit itself fails then.
func TestInTx_G1_a_function_that_ends_its_transaction_gets_an_error(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for _, statement := range []string{"COMMIT", "ROLLBACK"} {
			err := forwarder.InTx(t.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, statement)
				return err
			})
			require.Error(t, err)
			if database.Dialect != postbox.SQLite {
				require.ErrorIs(t, err, postbox.ErrCommitUnknown)
			}
		}
	})
}
