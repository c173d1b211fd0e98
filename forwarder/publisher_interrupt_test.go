package forwarder_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The end of a context interrupts an INSERT that waits, also where the driver is left to watch the
// transaction's context alone.
func TestPublisher_is_interrupted_on_postgres(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	database.Migrate(t)
	publisher := publisherFor(t, database, nil)
	publish := func(ctx context.Context) error {
		msg := newMessage("1", "")
		msg.SetContext(ctx)
		return publisher.Publish("topic", msg)
	}
	const prepared = "SELECT COUNT(*) FROM pg_prepared_statements WHERE statement LIKE '%INSERT INTO postbox_messages%'"
	require.Eventually(t, func() bool {
		n := 0
		require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, publish(ctx))
			return tx.QueryRowContext(ctx, prepared).Scan(&n)
		}))
		return n > 0
	}, 10*time.Second, time.Millisecond)
	before := pending(t, database)

	lock, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), "LOCK TABLE postbox_messages IN EXCLUSIVE MODE")
	require.NoError(t, err)
	const waiting = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'postbox_messages'::regclass"
	for name, end := range map[string]func(ctx context.Context) (context.Context, context.CancelFunc){
		"with the transaction": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, nil },
		"before it":            context.WithCancel,
	} {
		began, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		ends := make(chan context.CancelFunc, 1)
		go func() {
			failed <- postbox.InTx(began, database.DB, func(ctx context.Context, _ *sql.Tx) error {
				ctx, sooner := end(ctx)
				if sooner == nil {
					sooner = cancel
				}
				ends <- sooner
				return publish(ctx)
			})
		}()
		interrupt := <-ends
		require.Eventually(t, func() bool { return database.Count(t, waiting) == 1 }, 10*time.Second, time.Millisecond, name)
		interrupt()
		select {
		case err := <-failed:
			require.Error(t, err, name)
		case <-time.After(10 * time.Second):
			t.Fatal("still waiting for the lock: " + name)
		}
		cancel()
	}
	require.NoError(t, lock.Rollback())
	require.Equal(t, before, pending(t, database))
}
