package sources

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	wmforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// oldBroker is the broker of the stock daemon.
type oldBroker struct {
	mu   sync.Mutex
	list []string
}

func (b *oldBroker) Publish(_ string, messages ...*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, msg := range messages {
		b.list = append(b.list, msg.UUID)
	}
	return nil
}

func (b *oldBroker) Close() error { return nil }

func (b *oldBroker) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.list)
}

// stockDaemon runs Watermill's own forwarder on watermill-sql v3 until stopped.
func (w *oldWorld) stockDaemon(broker message.Publisher) (stop func()) {
	w.t.Helper()
	subscriber, err := wmsql.NewSubscriber(w.database.Open(w.t), wmsql.SubscriberConfig{
		SchemaAdapter: w.schema, OffsetsAdapter: w.offsets, PollInterval: 5 * time.Millisecond, RetryInterval: 5 * time.Millisecond,
	}, nil)
	require.NoError(w.t, err)
	daemon, err := wmforwarder.NewForwarder(subscriber, broker, watermill.NopLogger{}, wmforwarder.Config{ForwarderTopic: w.source.Topic})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = daemon.Run(ctx) })
	<-daemon.Running()
	stop = sync.OnceFunc(func() { _ = daemon.Close(); cancel(); running.Wait() }) // its router closes the subscriber
	w.t.Cleanup(stop)
	return stop
}

func (w *oldWorld) publishEnveloped(list ...string) {
	w.t.Helper()
	publisher := wmforwarder.NewPublisher(w.publisher(w.database.DB), wmforwarder.PublisherConfig{ForwarderTopic: w.source.Topic})
	for chunk := range slices.Chunk(list, 10) {
		require.NoError(w.t, publisher.Publish("orders", oldMessages(chunk...)...))
	}
}

// acked returns the highest offset that the consumer group has acknowledged.
func (w *oldWorld) acked() int {
	w.t.Helper()
	return w.database.Count(w.t, "SELECT COALESCE(MAX(offset_acked), 0) FROM "+w.offsetsTable())
}

// unread returns how many rows the consumer group has not acknowledged.
func (w *oldWorld) unread() int {
	w.t.Helper()
	column := `"offset"`
	if w.database.Dialect == postbox.MySQL {
		column = "`offset`"
	}
	return w.database.Count(w.t, "SELECT COUNT(*) FROM "+w.schemaTable()+" WHERE "+column+
		" > (SELECT COALESCE(MAX(offset_acked), 0) FROM "+w.offsetsTable()+")")
}

func TestTransfer_G2_what_the_old_daemon_forwarded_is_not_sent_again(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.source.Envelope = true
		w.initialize()
		broker := &oldBroker{}
		stop := w.stockDaemon(broker)
		w.publishEnveloped(ids("old", 0, 150)...)
		w.eventually(func() bool { return w.acked() == 150 }, "the old daemon forwards")
		stop()
		w.publishEnveloped(ids("new", 0, 50)...)

		transfer := w.transfer(w.database.DB, nil)
		w.eventually(func() bool { return w.step(transfer) > 0 }, "the last transaction of the old daemon ends")
		require.Zero(w.t, w.step(transfer))
		require.Equal(w.t, ids("new", 0, 50), w.movedIDs())
		require.Equal(w.t, ids("old", 0, 150), broker.ids())
		require.Equal(w.t, 150, w.left(), "what was forwarded stays")

		w.database.Exec(w.t, "DROP TABLE "+w.offsetsTable())
		require.Zero(w.t, w.step(w.transfer(w.database.Open(w.t), nil)), "also when the old daemon is forgotten")
	})
}

// While a deployment is rolled out, both run.
// Also covers G2.
func TestTransfer_G3_takes_over_while_the_old_daemon_forwards(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.source.Envelope, w.source.PageSize = true, 20
		w.initialize()
		broker := &oldBroker{}
		stop := w.stockDaemon(broker)
		w.publishEnveloped(ids("m", 0, 200)...)
		w.eventually(func() bool { return len(broker.ids()) > 20 }, "the old daemon forwards")
		for range 2 {
			w.start(w.transfer(w.database.Open(w.t), nil))
		}
		w.publishEnveloped(ids("m", 200, 600)...)
		w.eventually(func() bool { return w.unread() == 0 }, "each message goes one way")
		stop() // with nothing in flight: what the old daemon has sent and not acknowledged is sent again, as ever
		w.publishEnveloped(ids("m", 600, 700)...)
		w.eventually(func() bool { return len(broker.ids())+w.pending() >= 700 }, "Postbox goes on alone")

		sent, came := broker.ids(), w.movedIDs()
		require.True(w.t, slices.IsSorted(sent))
		require.True(w.t, slices.IsSorted(came))
		all := slices.Sorted(slices.Values(slices.Concat(sent, came)))
		require.Equal(w.t, ids("m", 0, 700), all, "nothing lost, nothing doubled")
		require.NotEmpty(w.t, came)
	})
}

// F20: the old daemon holds its lock while the broker is slow. Nobody waits for it, and nothing is
// sent twice.
func TestTransfer_F20_does_not_wait_for_the_old_daemon(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.initialize()
		transfer := w.transfer(w.database.DB, nil)
		w.publish(w.database.DB, "a")
		require.Equal(w.t, 1, w.step(transfer)) // enters the consumer group
		daemon := w.begin(w.database.Open(w.t))
		query := w.offsets.NextOffsetQuery(w.source.Topic, "")
		w.drain(daemon, dialect.Query{Text: query.Query, Args: query.Args})

		w.publish(w.database.DB, "b")
		require.Zero(w.t, w.step(transfer))
		require.True(w.t, transfer.held)
		require.NoError(w.t, daemon.Rollback())
		require.Equal(w.t, 1, w.step(transfer))
	})
}

func TestTransfer_G2_refuses_rows_that_other_consumer_groups_read(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.source.ConsumerGroup = "forwarder"
		w.initialize()
		for _, group := range []string{"forwarder", "billing", "audit"} {
			insert := "INSERT INTO " + w.offsetsTable() + " (consumer_group, offset_acked, last_processed_transaction_id) VALUES (?, 0, '0')"
			if w.database.Dialect == postbox.MySQL {
				insert = "INSERT INTO " + w.offsetsTable() + " (consumer_group, offset_acked, offset_consumed) VALUES (?, 0, 0)"
			}
			w.database.Exec(w.t, insert, group)
		}
		w.publish(w.database.DB, "a", "b")
		logger := watermill.NewCaptureLogger()
		transfer := w.transfer(w.database.DB, logger)
		for range 3 {
			require.Zero(w.t, w.step(transfer))
		}
		require.Len(w.t, w.errors(logger), 1, "said once")
		require.ErrorIs(w.t, w.errors(logger)[0].Err, errOtherGroups)
		require.ErrorContains(w.t, w.errors(logger)[0].Err, `"audit", "billing" besides "forwarder"`)
		require.Equal(w.t, 2, w.left())

		w.source.IgnoreOtherGroups, w.source.PageSize = true, 1
		require.Equal(w.t, 1, w.step(w.transfer(w.database.DB, nil)))
		w.database.Exec(w.t, "DELETE FROM "+w.offsetsTable()+" WHERE consumer_group <> 'forwarder'")
		require.Equal(w.t, 1, w.step(transfer), "goes on when they are gone")
	})
}

// watermill issue 576: transaction ids begin anew in a cluster that was restored from a dump.
func TestTransfer_G2_restored_from_a_dump(t *testing.T) {
	t.Parallel()
	w := newOldWorld(t, testdb.Postgres(t))
	w.initialize()
	logger := watermill.NewCaptureLogger()
	transfer := w.transfer(w.database.DB, logger)
	w.publish(w.database.DB, "a")
	require.Equal(t, 1, w.step(transfer))

	w.database.Exec(t, "UPDATE postbox_sources SET transaction_id = 9000000000000000000")
	w.publish(w.database.DB, "b")
	require.Equal(t, 1, w.step(w.transfer(w.database.Open(t), nil)), "a position of ours is only a hint")
	require.Less(t, w.database.Count(t, "SELECT transaction_id FROM postbox_sources"), 9000000000000000000)

	w.database.Exec(t, "UPDATE "+w.offsetsTable()+" SET last_processed_transaction_id = '9000000000000000000'")
	w.publish(w.database.DB, "c")
	require.Zero(t, w.step(transfer))
	require.Zero(t, w.step(transfer))
	require.Len(t, w.errors(logger), 1)
	require.ErrorIs(t, w.errors(logger)[0].Err, errRestored)
	w.database.Exec(t, "UPDATE "+w.offsetsTable()+" SET last_processed_transaction_id = '0'")
	require.Equal(t, 1, w.step(transfer))
	require.Equal(t, []string{"a", "b", "c"}, w.movedIDs())
}
