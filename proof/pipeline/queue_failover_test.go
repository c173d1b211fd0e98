package pipeline_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
	"github.com/postbox-go/watermill-postbox/queue"
)

// A handler of a queue has written its effect to the database that was lost. Its word that the
// message is done counts there alone: in the database that took over the message waits, and is
// handled. Also covers G4.
func TestFailover_PostgreSQL_G2_a_message_finished_only_in_the_lost_database_runs_again(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	handledBeforeAndSettledAfter(t, behind(t, postbox.PostgreSQL, "pgx", p.DSN("postgres")),
		func() { require.NoError(t, p.Sever(t.Context())) },
		func() {
			require.NoError(t, p.Stop(true))
			p.Relay.Cut()
			require.NoError(t, p.Promote(t.Context()))
			p.Relay.Move(p.Address())
		})
}

// Also covers G4.
func TestFailover_MariaDB_G2_a_message_finished_only_in_the_lost_database_runs_again(t *testing.T) {
	t.Parallel()
	m, err := testcluster.StartMariaDB(t.Context())
	clustertest.Require(t, m, err)
	handledBeforeAndSettledAfter(t, behind(t, postbox.MySQL, "mysql", m.DSN("postbox")),
		func() { require.NoError(t, m.Sever(t.Context())) },
		func() {
			require.NoError(t, m.Stop())
			m.Relay.Cut()
			require.NoError(t, m.Promote(t.Context()))
			m.Relay.Move(m.Address())
		})
}

func handledBeforeAndSettledAfter(t *testing.T, database *testdb.Database, fork, replace func()) {
	t.Helper()
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (message_id VARCHAR(40) NOT NULL)")
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	queued := inboxstore.Key{Consumer: "queue", Topic: "orders", MessageID: "m"}
	_, err = store.Defer(t.Context(), "queue", queued, message.NewMessage("m", nil))
	require.NoError(t, err)
	var replaced atomic.Bool
	begun, forked := make(chan struct{}, 1), make(chan struct{})
	written, replacing := make(chan struct{}, 1), make(chan struct{})
	handle := func(ctx context.Context, _ []*message.Message) error {
		if !replaced.Load() {
			begun <- struct{}{}
			<-forked
		}
		inbox := inboxstore.Key{Consumer: "handler", Topic: "orders", MessageID: "m"}
		_, err := store.Once(ctx, inbox, func(ctx context.Context) error {
			tx, _ := postbox.TxFromContext(ctx)
			_, err := tx.ExecContext(ctx, "INSERT INTO effects (message_id) VALUES ('m')")
			return err
		})
		if err == nil && !replaced.Load() {
			written <- struct{}{}
			<-replacing
		}
		return err
	}
	batch, err := queue.NewBatch(store, "queue", handle, queue.BatchConfig{Size: 1}, nil)
	require.NoError(t, err)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	waiting := "SELECT COUNT(*) FROM postbox_messages"
	require.Equal(t, 1, database.Count(t, waiting))
	go func() { ended <- batch.Run(ctx) }()
	<-begun // its lease is in both databases
	fork()
	close(forked)
	<-written
	replace()
	replaced.Store(true)
	close(replacing)
	require.Eventually(t, func() bool {
		var pending int
		return database.DB.QueryRowContext(t.Context(), waiting).Scan(&pending) == nil && pending == 0
	}, patience, 10*time.Millisecond)
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM effects"))
	stop()
	require.NoError(t, <-ended)
}
