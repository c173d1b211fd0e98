package receipts_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/receipts"
)

// Run went on for ever, and logged an error every now and then.
func TestReceiver_Run_without_tables_says_to_migrate(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		log := enginetest.NewJournal()
		receiver, err := receipts.NewReceiver(database.Postbox(), receipts.Config{}, log)
		require.NoError(t, err)
		require.ErrorContains(t, receiver.Run(ctx), "call postbox.Migrate first")
		require.NoError(t, ctx.Err())
		require.Equal(t, 1, log.Said("has stopped"))

		database.Migrate(t)
		receiver, err = receipts.NewReceiver(database.Postbox(), receipts.Config{}, nil)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- receiver.Run(ctx) }()
		require.Eventually(t, func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_chores") > 0 }, enginetest.Patience, testdb.PollPause)
		require.NoError(t, receiver.Close())
		require.NoError(t, <-ended)
	})
}

func TestReceiver_Run_waits_for_a_database_that_is_away(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", "postgres://postbox@127.0.0.1:1/away?connect_timeout=1")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	log := enginetest.NewJournal()
	receiver, err := receipts.NewReceiver(postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, receipts.Config{}, log)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- receiver.Run(t.Context()) }()
	select {
	case err := <-ended:
		require.Fail(t, "it has ended", "%v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	require.Equal(t, 1, log.Said("cannot reach its database"))
	require.NoError(t, receiver.Close())
	require.NoError(t, <-ended)
}
