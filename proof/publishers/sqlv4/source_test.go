package sqlv4_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/sources"
)

// notes is a broker, and a handler, that notes the ids of what comes.
type notes struct {
	mu   sync.Mutex
	list []string
}

// Publish notes messages.
func (n *notes) Publish(_ string, messages ...*message.Message) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, msg := range messages {
		n.list = append(n.list, msg.UUID)
	}
	return nil
}

// Close does nothing.
func (n *notes) Close() error { return nil }

func (n *notes) ids() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

// group subscribes to the table of v4 until stopped, as a consumer or a daemon of a user does.
func group(t *testing.T, database *testdb.Database, to *notes) (stop func()) {
	t.Helper()
	_, subscriber, _ := adapters(t, database)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	messages, err := subscriber.Subscribe(ctx, "orders")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for msg := range messages {
			_ = to.Publish("orders", msg)
			msg.Ack()
		}
	})
	stop = sync.OnceFunc(func() { cancel(); _ = subscriber.Close(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// Also covers feature 3.5.
func TestSource_takes_over_a_table_of_watermill_sql_v4_and_gives_it_back(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		publisher, _, acked := adapters(t, database.Migrate(t))
		consumer, broker := &notes{}, &notes{}
		var placed []string
		place := func(number int) {
			for range number {
				id := fmt.Sprintf("%05d", len(placed))
				require.NoError(t, publisher.Publish("orders", message.NewMessage(id, []byte("{}"))))
				placed = append(placed, id)
			}
		}
		arrived := func(what string) {
			t.Helper()
			require.Eventually(t, func() bool { return len(consumer.ids())+len(broker.ids()) >= len(placed) }, patience, 5*time.Millisecond, what)
		}
		place(10)
		stopGroup := group(t, database, consumer)
		arrived("the consumers of the table")
		require.Eventually(t, func() bool { return acked() == len(placed) }, patience, 5*time.Millisecond)
		stopGroup()

		place(10)
		stopForwarder := forward(t, database, broker)
		place(10)
		arrived("the source")
		require.Equal(t, placed[10:], broker.ids(), "what was not consumed, in its order")
		stopForwarder()

		place(10)
		stopGroup = group(t, database, consumer)
		arrived("back: the consumers of the table")
		stopGroup()
		require.Equal(t, slices.Concat(placed[:10], placed[30:]), consumer.ids(), "what was not taken over, in its order")
	})
}

func forward(t *testing.T, database *testdb.Database, to message.Publisher) (stop func()) {
	t.Helper()
	fwd, err := forwarder.New(database.Postbox(), to, forwarder.Config{
		Sources: []forwarder.Source{sources.WatermillSQL(sources.Config{Topic: "orders", PollMax: 20 * time.Millisecond})},
	}, watermill.NopLogger{})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.WithoutCancel(t.Context())) }()
	stop = sync.OnceFunc(func() {
		require.NoError(t, fwd.Close())
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// adapters returns a publisher and a subscriber of v4 with its default schema, and what its
// consumer group has acked.
func adapters(t *testing.T, database *testdb.Database) (*wmsql.Publisher, *wmsql.Subscriber, func() int) {
	t.Helper()
	var schema wmsql.SchemaAdapter = wmsql.DefaultPostgreSQLSchema{}
	var offsets wmsql.OffsetsAdapter = wmsql.DefaultPostgreSQLOffsetsAdapter{}
	table := wmsql.DefaultPostgreSQLOffsetsAdapter{}.MessagesOffsetsTable("orders")
	if database.Dialect == postbox.MySQL {
		schema, offsets = wmsql.DefaultMySQLSchema{}, wmsql.DefaultMySQLOffsetsAdapter{}
		table = wmsql.DefaultMySQLOffsetsAdapter{}.MessagesOffsetsTable("orders")
	}
	db := wmsql.BeginnerFromStdSQL(database.DB)
	publisher, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, nil)
	require.NoError(t, err)
	subscriber, err := wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: offsets, InitializeSchema: true,
		PollInterval: 10 * time.Millisecond, ResendInterval: 10 * time.Millisecond,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, subscriber.SubscribeInitialize("orders"))
	return publisher, subscriber, func() int {
		return database.Count(t, "SELECT COALESCE(MAX(offset_acked), 0) FROM "+table)
	}
}
