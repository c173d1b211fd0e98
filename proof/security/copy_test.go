package security_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Tables that carry the name of a deployment are worked off by processes that are configured with
// it, and by no others.
func TestDeployment_a_copy_sends_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		production := &deployment{
			Database: database, name: "production", logger: newCapture(), sent: new(atomic.Int64),
		}
		require.NoError(t, production.migrate(t))
		require.NoError(t, production.migrate(t), "again")
		production.publish(t)
		for _, name := range []string{"staging", "", "Production"} {
			staging := *production
			staging.name = name
			staging.refused(t)
		}
		require.Equal(t, 2, database.Count(t, storedMessages), "all is there")
		require.Zero(t, production.sent.Load())
		production.works(t)

		taken := *production
		taken.name, taken.sent = "staging", new(atomic.Int64)
		require.ErrorIs(t, taken.migrate(t), postbox.ErrDeployment)
		database.Exec(t, "UPDATE postbox_deployment SET name = 'staging'") // as docs/security.md says
		require.NoError(t, taken.migrate(t))
		taken.publish(t)
		production.refused(t)
		taken.works(t)
	})
}

// A name is given to tables by Migrate alone: a process that expects one finds out that they have
// none.
func TestDeployment_a_process_with_a_name_refuses_tables_without_one(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		d := &deployment{Database: database, logger: newCapture(), sent: new(atomic.Int64)}
		require.NoError(t, d.migrate(t))
		d.publish(t)
		d.works(t)
		d.name = "production"
		d.publish(t)
		d.refused(t)
		require.NoError(t, d.migrate(t))
		d.works(t)
	})
}

// deployment is the processes of one, or of what thinks it is.
type deployment struct {
	*testdb.Database
	name   string
	logger capture
	sent   *atomic.Int64
}

func (d *deployment) tables() postbox.Database {
	return postbox.Database{DB: d.DB, Dialect: d.Dialect, Deployment: d.name}
}

func (d *deployment) migrate(t *testing.T) error {
	t.Helper()
	return postbox.Migrate(t.Context(), d.tables())
}

func (d *deployment) store(t *testing.T) *inboxstore.Store {
	t.Helper()
	store, err := inboxstore.New(d.tables(), inboxstore.Config{CacheSize: -1}, d.logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// publish stores a message in the outbox and one in a queue.
func (d *deployment) publish(t *testing.T) {
	t.Helper()
	publisher, err := forwarder.NewPublisher(d.tables(), forwarder.PublisherConfig{AllowAutocommit: true}, d.logger)
	require.NoError(t, err)
	require.NoError(t, publisher.Publish("orders", message.NewMessage(postbox.NewMessageID(), nil)))
	require.NoError(t, publisher.Close())
	id := postbox.NewMessageID()
	_, err = d.store(t).Defer(t.Context(), "queue", inboxstore.Key{Consumer: "queue", Topic: "orders", MessageID: id}, message.NewMessage(id, nil))
	require.NoError(t, err)
}

// Publish is what its forwarder sends to.
func (d *deployment) Publish(_ string, messages ...*message.Message) error {
	d.sent.Add(int64(len(messages)))
	return nil
}

func (d *deployment) Close() error { return nil }

func (d *deployment) forwarder(t *testing.T) *forwarder.Forwarder {
	t.Helper()
	fwd, err := forwarder.New(d.tables(), d, forwarder.Config{}, d.logger)
	require.NoError(t, err)
	return fwd
}

func (d *deployment) batch(t *testing.T) *queue.Batch {
	t.Helper()
	handler := func(_ context.Context, messages []*message.Message) error {
		return d.Publish("", messages...)
	}
	batch, err := queue.NewBatch(d.store(t), "queue", handler, queue.BatchConfig{Size: 1}, d.logger)
	require.NoError(t, err)
	return batch
}

// refused starts a forwarder, a queue and a batch, none of which works.
func (d *deployment) refused(t *testing.T) {
	t.Helper()
	require.ErrorIs(t, d.forwarder(t).Run(t.Context()), postbox.ErrDeployment)
	require.ErrorIs(t, d.batch(t).Run(t.Context()), postbox.ErrDeployment)
	subscriber, err := queue.NewSubscriber(d.store(t), queue.Config{}, d.logger)
	require.NoError(t, err)
	_, err = subscriber.Subscribe(t.Context(), "queue")
	require.ErrorIs(t, err, postbox.ErrDeployment)
	require.NoError(t, subscriber.Close())
}

// works starts a forwarder and a batch, which send what there is.
func (d *deployment) works(t *testing.T) {
	t.Helper()
	before := d.sent.Load()
	fwd, batch := d.forwarder(t), d.batch(t)
	ended := make(chan error, 2)
	go func() { ended <- fwd.Run(t.Context()) }()
	go func() { ended <- batch.Run(t.Context()) }()
	require.Eventually(t, func() bool { return d.Count(t, storedMessages) == 0 }, patience, tick)
	require.NoError(t, fwd.Close())
	require.NoError(t, batch.Close())
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	require.EqualValues(t, 2, d.sent.Load()-before)
}
