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

// The address of the database leads to a hot standby for a while, as it does where clients follow a
// name or a proxy. That is an outage: no attempt counts, no message is dead, and the log says why.
func TestStandby_PostgreSQL_G7_an_address_that_leads_to_a_standby_is_an_outage(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"postgres", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			p, err := testcluster.StartPostgres(t.Context())
			clustertest.Require(t, p, err)
			require.NoError(t, p.Synchronize(t.Context())) // what is there is on the standby as well
			onStandby(t, p, behind(t, postbox.PostgreSQL, driver, p.DSN("postgres")))
		})
	}
}

func onStandby(t *testing.T, p *testcluster.Postgres, database *testdb.Database) {
	t.Helper()
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (message_id VARCHAR(40) NOT NULL)")
	logger := &errorLog{}
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, logger)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	put := func(id string) error {
		_, err := store.Defer(t.Context(), "queue", inboxstore.Key{Consumer: "queue", Topic: "orders", MessageID: id}, message.NewMessage(id, nil))
		return err
	}
	var moved atomic.Bool
	begun, back := make(chan struct{}, 1), make(chan struct{})
	var runs atomic.Int64
	handle := func(ctx context.Context, messages []*message.Message) error {
		runs.Add(1)
		if !moved.Load() {
			begun <- struct{}{}
			<-back // it goes on, and writes, on the standby
		}
		tx, _ := postbox.TxFromContext(ctx)
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (message_id) VALUES ($1)", messages[0].UUID)
		return err
	}
	config := queue.BatchConfig{Size: 1}
	config.Worker.Transactional = true
	batch, err := queue.NewBatch(store, "queue", handle, config, logger)
	require.NoError(t, err)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	for _, id := range []string{"a", "b", "c"} {
		require.NoError(t, put(id))
	}
	go func() { ended <- batch.Run(ctx) }()
	<-begun
	p.Relay.Cut()
	p.Relay.Move(p.StandbyAddress())
	moved.Store(true)
	close(back)
	require.Eventually(t, func() bool {
		return len(logger.with("Postbox cannot write to its database, which is read-only")) > 0
	}, patience, 10*time.Millisecond)
	require.Error(t, put("d"), "a standby takes nothing")
	p.Relay.Cut()
	p.Relay.Move(p.Address())
	require.Eventually(t, func() bool { return put("d") == nil }, patience, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		var pending int
		return database.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM postbox_messages").Scan(&pending) == nil && pending == 0
	}, patience, 10*time.Millisecond)
	require.Equal(t, 4, database.Count(t, "SELECT COUNT(*) FROM effects"))
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	stop()
	require.NoError(t, <-ended)
}
