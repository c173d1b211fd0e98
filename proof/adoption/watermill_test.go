package adoption_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	wmforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/sources"
)

// forwarderTopic is that of Watermill's forwarder, and so names the table.
const forwarderTopic = "events"

// stock is Watermill's forwarder over watermill-sql v3.
type stock struct {
	*world

	schema  wmsql.SchemaAdapter
	offsets wmsql.OffsetsAdapter
}

func newStock(w *world) stock {
	if w.database.Dialect == postbox.MySQL {
		return stock{w, wmsql.DefaultMySQLSchema{}, wmsql.DefaultMySQLOffsetsAdapter{}}
	}
	return stock{w, wmsql.DefaultPostgreSQLSchema{}, wmsql.DefaultPostgreSQLOffsetsAdapter{}}
}

// publish is what an old producer does.
func (s stock) publish(_ context.Context, tx *sql.Tx, msg *message.Message) error {
	table, err := wmsql.NewPublisher(tx, wmsql.PublisherConfig{SchemaAdapter: s.schema}, nil)
	if err != nil {
		return err
	}
	return wmforwarder.NewPublisher(table, wmforwarder.PublisherConfig{ForwarderTopic: forwarderTopic}).Publish("orders", msg)
}

// daemon runs the old daemon until stopped.
func (s stock) daemon(to message.Publisher) (stop func()) {
	s.Helper()
	subscriber, err := wmsql.NewSubscriber(s.database.Open(s.T), wmsql.SubscriberConfig{
		SchemaAdapter: s.schema, OffsetsAdapter: s.offsets, PollInterval: tick, RetryInterval: tick,
	}, nil)
	require.NoError(s, err)
	require.NoError(s, subscriber.SubscribeInitialize(forwarderTopic))
	daemon, err := wmforwarder.NewForwarder(subscriber, to, watermill.NopLogger{}, wmforwarder.Config{ForwarderTopic: forwarderTopic})
	require.NoError(s, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = daemon.Run(ctx) })
	<-daemon.Running()
	stop = sync.OnceFunc(func() { _ = daemon.Close(); cancel(); running.Wait() })
	s.Cleanup(stop)
	return stop
}

// Also covers G3, and feature 3.5.
func TestAdopt_watermills_forwarder_there_and_back(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		w, to := newWorld(t, database), &broker{}
		old, g := newStock(w), openGuide(t, database, "Watermill's forwarder")
		stopDaemon := old.daemon(to)
		w.place(20, old.publish)
		g.works("postbox migrate up")
		w.arrived(to, "the old world")

		// Step 2: the daemon.
		stopDaemon()
		w.place(20, old.publish)
		config := forwarder.Config{Sources: []forwarder.Source{sources.WatermillSQL(sources.Config{Topic: forwarderTopic, Envelope: true, PollMax: tick})}}
		stopForwarder := w.forward(to, config)
		w.place(20, old.publish)
		w.arrived(to, "the source takes over what the old daemon has left, and what old producers write")
		g.works("postbox check --max-age 1m")
		require.NotContains(t, g.works("postbox dead list"), "orders")

		// And back, with rows that the source has taken over and rows that it has not.
		w.place(20, old.publish)
		stopForwarder()
		w.place(20, old.publish)
		stopForwarder = w.forward(to, forwarder.Config{})
		g.works("postbox drain --outbox outbox --timeout 5m")
		stopForwarder()
		stopDaemon = old.daemon(to)
		w.place(20, old.publish)
		w.arrived(to, "the old daemon goes on behind what was taken over")

		// Steps 2 and 3 for good: the old table is empty before the first new producer starts.
		stopDaemon()
		w.place(20, old.publish)
		w.forward(to, config)
		w.arrived(to, "the old table runs empty")
		outbox := w.toOutbox()
		require.NoError(t, database.DB.PingContext(t.Context()))
		w.place(20, func(_ context.Context, _ *sql.Tx, msg *message.Message) error { return outbox.Publish("orders", msg) })
		g.works("postbox messages list --limit 10")
		w.arrived(to, "new producers")
		g.finished()
		require.Equal(t, len(w.placed), database.Count(t, "SELECT COUNT(*) FROM orders"))
	})
}
