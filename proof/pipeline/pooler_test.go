package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/sources"
)

// pooled are the ways in which docs/poolers.md says to open a database behind a pooler in
// transaction mode.
var pooled = map[string]struct{ driver, options string }{
	"lib/pq":              {"postgres", "binary_parameters=yes"},
	"pgx exec":            {"pgx", "default_query_exec_mode=exec"},
	"pgx simple_protocol": {"pgx", "default_query_exec_mode=simple_protocol"},
}

// poisonous is the id of the message whose handler fails.
const poisonous = "poisonous"

// behindPooler is a service all of whose statements go through PgBouncer.
type behindPooler struct {
	direct    *testdb.Database
	db        postbox.Database
	publisher *forwarder.Publisher
	store     *inboxstore.Store
	inbox     *middleware.Inbox
	logger    *errorLog
	fail      atomic.Bool
}

// Publish is in the place of a broker: it hands each message to an inbox, and stores it in two
// queues.
func (b *behindPooler) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if _, err := b.inbox.Process(msg.Context(), msg, func(msg *message.Message) ([]*message.Message, error) {
			return nil, b.effect(msg.Context(), "inbox", msg)
		}); err != nil {
			return err
		}
		for _, queue := range []string{"single", "batch"} {
			key := inboxstore.Key{Consumer: queue, Topic: topic, MessageID: msg.UUID}
			if _, err := b.store.Defer(msg.Context(), queue, key, msg); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close does nothing.
func (*behindPooler) Close() error { return nil }

// effect is what a handler writes, in its transaction.
func (b *behindPooler) effect(ctx context.Context, by string, msg *message.Message) error {
	if by == "single" && msg.UUID == poisonous && b.fail.Load() {
		return postbox.Permanent(errors.New("poison"))
	}
	tx, _ := postbox.TxFromContext(ctx)
	_, err := tx.ExecContext(ctx, `INSERT INTO "`+b.db.Schema+`".effects VALUES ($1, $2)`, by, msg.UUID) //nolint:gosec // the schema of this test
	return err
}

// Also covers G4.
func TestPooler_G1_every_part_works_behind_PgBouncer_in_transaction_mode(t *testing.T) {
	t.Parallel()
	for name, opened := range pooled {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBehindPooler(t, opened.driver, opened.options)
			b.run(t)

			const producers, each = 4, 50
			var wg sync.WaitGroup
			for producer := range producers {
				wg.Go(func() {
					for i := range each {
						b.publish(t, fmt.Sprint(producer, "-", i))
					}
				})
			}
			wg.Wait()
			b.publish(t, poisonous)
			b.direct.Exec(t, `INSERT INTO watermill_orders (uuid, payload, metadata, transaction_id) VALUES ('taken over', '{}', '{}', pg_current_xact_id())`)
			b.applied(t, 3*(producers*each+2)-1)
			b.requeuePoisonous(t)
			b.applied(t, 3*(producers*each+2))
			require.Len(t, b.logger.with(""), 1, "the dead letter")
		})
	}
}

// newBehindPooler migrates through the pooler, too.
func newBehindPooler(t *testing.T, driver, options string) *behindPooler {
	t.Helper()
	b := &behindPooler{direct: testdb.Postgres(t), logger: &errorLog{}}
	b.fail.Store(true)
	b.direct.Exec(t, "CREATE TABLE effects (by_whom TEXT NOT NULL, message TEXT NOT NULL)")
	b.direct.Exec(t, `CREATE TABLE watermill_orders ("offset" BIGSERIAL, uuid VARCHAR(36) NOT NULL, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
		payload JSON, metadata JSON, transaction_id XID8 NOT NULL, PRIMARY KEY (transaction_id, "offset"))`) // as watermill-sql v3 does it
	b.db = b.direct.ThroughPooler(t, driver, options)
	b.db.DisablePreparedStatements = true
	b.migrate(t)

	var err error
	b.publisher, err = forwarder.NewPublisher(b.db, forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.publisher.Close()) })
	b.store, err = inboxstore.New(b.db, inboxstore.Config{}, b.logger)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.store.Close()) })
	b.inbox, err = middleware.NewInbox(b.store, middleware.InboxConfig{Consumer: "inbox", Topic: "orders"}, b.logger)
	require.NoError(t, err)
	return b
}

// migrate does it from several starters at the same time, and leaves no lock behind in a connection
// of the pooler.
func (b *behindPooler) migrate(t *testing.T) {
	t.Helper()
	var starters sync.WaitGroup
	for range 6 {
		starters.Go(func() {
			if err := postbox.Migrate(t.Context(), b.db); err != nil {
				t.Error(err)
			}
		})
	}
	starters.Wait()
	b.direct.Migrate(t) // nothing is locked
}

// run forwards, and handles what is in the queues, until the test ends.
func (b *behindPooler) run(t *testing.T) {
	t.Helper()
	fwd, err := forwarder.New(b.db, b, forwarder.Config{
		Concurrency: 4,
		Sources: []forwarder.Source{sources.WatermillSQL(sources.Config{
			Topic: "orders", Table: `"` + b.db.Schema + `".watermill_orders`, OffsetsTable: `"` + b.db.Schema + `".watermill_offsets_orders`,
		})},
	}, b.logger)
	require.NoError(t, err)
	inBackground(t, fwd.Run, fwd.Close)

	config := queue.Config{Transactional: true, Concurrency: 3}
	batch, err := queue.NewBatch(b.store, "batch", func(ctx context.Context, messages []*message.Message) error {
		for _, msg := range messages {
			if err := b.effect(ctx, "batch", msg); err != nil {
				return err
			}
		}
		return nil
	}, queue.BatchConfig{Size: 20, Age: 100 * time.Millisecond, Worker: config}, b.logger)
	require.NoError(t, err)
	inBackground(t, batch.Run, batch.Close)

	subscriber, err := queue.NewSubscriber(b.store, config, b.logger)
	require.NoError(t, err)
	messages, err := subscriber.Subscribe(t.Context(), "single")
	require.NoError(t, err)
	process := middleware.Process(func(msg *message.Message) ([]*message.Message, error) {
		return nil, b.effect(msg.Context(), "single", msg)
	})
	var handlers sync.WaitGroup
	for range config.Concurrency {
		handlers.Go(func() {
			for msg := range messages {
				if _, err := process(msg); err != nil {
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
}

func (b *behindPooler) publish(t *testing.T, id string) {
	t.Helper()
	err := postbox.InTx(t.Context(), b.db.DB, func(ctx context.Context, _ *sql.Tx) error {
		msg := message.NewMessage(id, []byte("{}"))
		msg.SetContext(ctx)
		return b.publisher.Publish("orders", msg)
	})
	if err != nil {
		t.Error(err)
	}
}

// applied waits until the handlers have had their effects, each of them once.
func (b *behindPooler) applied(t *testing.T, effects int) {
	t.Helper()
	require.Eventually(t, func() bool { return b.direct.Count(t, "SELECT COUNT(*) FROM effects") >= effects }, time.Minute, 20*time.Millisecond)
	require.Equal(t, effects, b.direct.Count(t, "SELECT COUNT(*) FROM effects"))
	require.Equal(t, effects, b.direct.Count(t, "SELECT COUNT(*) FROM (SELECT DISTINCT by_whom, message FROM effects) e"))
}

// requeuePoisonous lets an operator find the dead letter and requeue it.
func (b *behindPooler) requeuePoisonous(t *testing.T) {
	t.Helper()
	operator, err := admin.New(b.db, admin.Config{}, nil)
	require.NoError(t, err)
	var letters []admin.DeadLetter
	require.Eventually(t, func() bool {
		letters, _, err = operator.DeadLetters(t.Context(), admin.Filter{})
		require.NoError(t, err)
		return len(letters) == 1
	}, time.Minute, 20*time.Millisecond)
	_, err = operator.Queues(t.Context())
	require.NoError(t, err)
	require.NoError(t, operator.Pause(t.Context(), admin.Filter{Target: admin.Queue("single"), All: true}))
	require.NoError(t, operator.Resume(t.Context(), admin.Filter{Target: admin.Queue("single"), All: true}))
	b.fail.Store(false)
	require.NoError(t, errorOf(operator.Requeue(t.Context(), admin.Filter{ID: letters[0].ID}, admin.Again{})))
}

// inBackground runs something until the test ends.
func inBackground(t *testing.T, run func(context.Context) error, end func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- run(context.Background()) }()
	t.Cleanup(func() {
		require.NoError(t, end())
		require.NoError(t, <-done)
	})
}

// errorOf is the error of an action, whatever it has changed.
func errorOf(_ int, err error) error { return err }
