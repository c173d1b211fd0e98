package router_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// pooled are the ways in which docs/poolers.md says to open a database behind a pooler in transaction mode.
var pooled = map[string]struct{ driver, options string }{
	"lib/pq": {"postgres", "binary_parameters=yes"},
	"pgx":    {"pgx", "default_query_exec_mode=exec"},
}

// toInbox hands on to the inbox what the forwarder publishes, in the place of a broker.
type toInbox struct {
	store   *inboxstore.Store
	schema  string
	handled atomic.Int64
	stored  atomic.Int64
}

// Publish handles each message once, and stores it in two queues.
func (p *toInbox) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		key := inboxstore.Key{Consumer: "once", Topic: topic, MessageID: msg.UUID}
		fresh, err := p.store.Once(context.Background(), key, func(ctx context.Context) error {
			return effect(ctx, p.schema, "once", msg)
		})
		if err != nil {
			return err
		}
		if fresh {
			p.handled.Add(1)
		}
		for _, queue := range []string{"single", "batch"} {
			key := inboxstore.Key{Consumer: queue, Topic: topic, MessageID: msg.UUID}
			fresh, err := p.store.Defer(context.Background(), queue, key, msg)
			if err != nil {
				return err
			}
			if fresh {
				p.stored.Add(1)
			}
		}
	}
	return nil
}

// Close does nothing.
func (*toInbox) Close() error { return nil }

func effect(ctx context.Context, schema, by string, msg *message.Message) error {
	tx, _ := postbox.TxFromContext(ctx)
	_, err := tx.ExecContext(ctx, `INSERT INTO "`+schema+`".effects VALUES ($1, $2)`, by, msg.UUID)
	return err
}

// Each statement outside of a transaction may come to another connection of the server.
func TestPooler_G1_G4_every_part_works_behind_PgBouncer_in_transaction_mode(t *testing.T) {
	t.Parallel()
	for name, opened := range pooled {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.Postgres(t)
			database.Exec(t, "CREATE TABLE effects (by_whom TEXT NOT NULL, message TEXT NOT NULL)")
			pooler := testdb.StartPooler(t, database)
			db := pooler.Open(t, opened.driver, opened.options)
			tables := postbox.Tables{Schema: pooler.Schema}
			migrate(t, database, db, tables)

			config := inboxstore.Config{Dialect: postbox.PostgreSQL, Tables: tables, DisablePreparedStatements: true}
			store, err := inboxstore.New(db, config, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			publisher, err := forwarder.NewPublisher(db, forwarder.PublisherConfig{Dialect: postbox.PostgreSQL, Tables: tables, DisablePreparedStatements: true}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, publisher.Close()) })
			logger := watermill.NewCaptureLogger()
			inbox := &toInbox{store: store, schema: pooler.Schema}
			fwd, err := forwarder.New(db, inbox, forwarder.Config{Dialect: postbox.PostgreSQL, Tables: tables, Concurrency: 4, DisablePreparedStatements: true}, logger)
			require.NoError(t, err)
			background(t, fwd.Run, fwd.Close)
			work(t, store, pooler.Schema, logger)

			const producers, each = 4, 50
			var wg sync.WaitGroup
			for producer := range producers {
				wg.Go(func() {
					for i := range each {
						publish(t, db, publisher, fmt.Sprint(producer, "-", i))
					}
				})
			}
			wg.Wait()
			require.Eventually(t, func() bool {
				return database.Count(t, "SELECT COUNT(*) FROM effects") == 3*producers*each
			}, 90*time.Second, 50*time.Millisecond, "once, from the queue, and in batches")
			require.Equal(t, 3*producers*each, database.Count(t, "SELECT COUNT(*) FROM (SELECT DISTINCT by_whom, message FROM effects) e"))
			require.Empty(t, logger.Captured()[watermill.ErrorLogLevel])
			require.EqualValues(t, producers*each, inbox.handled.Load())
			require.EqualValues(t, 2*producers*each, inbox.stored.Load())
		})
	}
}

// migrate migrates through the pooler, and then wants the lock to be free for whoever does not use it.
func migrate(t *testing.T, database *testdb.Database, db *sql.DB, tables postbox.Tables) {
	t.Helper()
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = postbox.Migrate(t.Context(), db, postbox.MigrateConfig{Dialect: postbox.PostgreSQL, Tables: tables})
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, 1, database.Count(t, `SELECT CASE WHEN pg_try_advisory_xact_lock(hashtextextended(?, 0)) THEN 1 ELSE 0 END`,
		fmt.Sprintf("postbox migrate %q.postbox_version", tables.Schema)), "nobody has the lock")
}

func publish(t *testing.T, db *sql.DB, publisher *forwarder.Publisher, id string) {
	t.Helper()
	err := forwarder.InTx(t.Context(), db, func(ctx context.Context, _ *sql.Tx) error {
		msg := message.NewMessage(id, []byte("{}"))
		msg.SetContext(ctx)
		return publisher.Publish("orders", msg)
	})
	if err != nil {
		t.Error(err)
	}
}

// work handles what is in the queues.
func work(t *testing.T, store *inboxstore.Store, schema string, logger watermill.LoggerAdapter) {
	t.Helper()
	subscriber, err := inboxstore.NewSubscriber(store, inboxstore.QueueConfig{Transactional: true, Concurrency: 3}, logger)
	require.NoError(t, err)
	messages, err := subscriber.Subscribe(t.Context(), "single")
	require.NoError(t, err)
	var handlers sync.WaitGroup
	for range 3 {
		handlers.Go(func() {
			for msg := range messages {
				if err := effect(msg.Context(), schema, "single", msg); err != nil {
					msg.Nack()
					continue
				}
				msg.Ack()
			}
		})
	}
	t.Cleanup(func() {
		require.NoError(t, subscriber.Close())
		handlers.Wait()
	})
	batch, err := inboxstore.NewBatch(store, "batch", func(ctx context.Context, messages []*message.Message) error {
		for _, msg := range messages {
			if err := effect(ctx, schema, "batch", msg); err != nil {
				return err
			}
		}
		return nil
	}, inboxstore.BatchConfig{Size: 20, Age: 100 * time.Millisecond, QueueConfig: inboxstore.QueueConfig{Transactional: true}}, logger)
	require.NoError(t, err)
	background(t, batch.Run, batch.Close)
}

// background runs something until the test ends.
func background(t *testing.T, run func(context.Context) error, end func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- run(context.Background()) }()
	t.Cleanup(func() {
		require.NoError(t, end())
		require.NoError(t, <-done)
	})
}
