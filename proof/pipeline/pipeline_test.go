package pipeline_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// The stages of a run at which something is closed and started, in parts of all messages.
const stages = 5

// scenario is a run of the pipeline.
type scenario struct {
	broker broker
	// processes of the consuming service at a time.
	processes int
	// unordered is for processes that share one queue of RabbitMQ, which hands neighbours to
	// different ones.
	unordered bool
}

// PostgreSQL → RabbitMQ → PostgreSQL, one consuming process at a time, so its queue keeps the
// order. Also covers G1, G3, G4, F2, F16, F17, F21 and F24.
func TestPipeline_RabbitMQ_G2_delivers_from_outbox_to_inbox_under_faults(t *testing.T) {
	t.Parallel()
	runScenario(t, scenario{broker: rabbitMQ(testservice.Address(t, testservice.AMQPVariable)), processes: 1})
}

// Copies of one message are handled at the same instant by two processes that share the queues.
// Also covers F6.
func TestPipeline_RabbitMQ_G4_consumers_share_a_queue(t *testing.T) {
	t.Parallel()
	runScenario(t, scenario{broker: rabbitMQ(testservice.Address(t, testservice.AMQPVariable)), processes: 2, unordered: true})
}

// PostgreSQL → Kafka → PostgreSQL. Partitions move between two processes when one of them closes
// and comes back. Also covers G1, G3, G4, F2, F6, F16, F21, F24 and F25.
func TestPipeline_Kafka_G2_delivers_from_outbox_to_inbox_under_faults(t *testing.T) {
	t.Parallel()
	runScenario(t, scenario{broker: apacheKafka(testservice.Address(t, testservice.KafkaVariable)), processes: 2})
}

func runScenario(t *testing.T, s scenario) {
	t.Helper()
	const keys, each = 12, 40
	w := newWorld(t, s.broker, testdb.Postgres)
	tr := &trouble{}

	relays := []*relay{
		w.relay(t, w.producer, tr), w.relay(t, w.producer, tr), // two share the producer's outbox
		w.relay(t, w.consumer, tr), // and one has the ledger's
	}
	services := make([]*service, s.processes)
	for i := range services {
		var err error
		services[i], err = newService(w, w.consumer.Open(t), nil)
		require.NoError(t, err)
		require.NoError(t, services[i].start())
	}

	var producing errgroup.Group
	producing.Go(func() error { return w.produce(t.Context(), keys, each, 10*time.Millisecond) })
	for stage := 1; stage < stages; stage++ {
		w.awaitStage(t, stage, keys*each)
		if stage%2 == 0 { // F24: routers close under load
			s := services[stage/2%len(services)]
			require.NoError(t, s.stop())
			require.NoError(t, s.start())
			continue
		}
		// A forwarder closes and another takes over: at the producer, then at the consumer.
		i, database := 0, w.producer
		if stage > 1 {
			i, database = len(relays)-1, w.consumer
		}
		require.NoError(t, relays[i].stop())
		relays[i] = w.relay(t, database, tr)
	}
	require.NoError(t, producing.Wait())
	w.flush(t, keys)

	var injected int64
	for _, service := range services {
		require.NoError(t, service.stop())
		require.NoError(t, service.close())
		injected += service.faults.injected.Load()
	}
	for _, relay := range relays {
		require.NoError(t, relay.stop())
	}
	w.check(t, !s.unordered)

	// The faults did happen, and a failed handler has left a record and nothing else. The forwarder
	// of the ledger's outbox has records in the same table: of messages that wait, also because the
	// call that probed a topic failed.
	require.Positive(t, tr.doubled)
	require.Positive(t, tr.lied)
	require.Positive(t, injected)
	recorded := w.consumer.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE error NOT LIKE ?", "%"+troublePrefix+"%")
	require.LessOrEqual(t, recorded, int(injected), "a handler that fails while its router closes is not to blame")
	require.Positive(t, recorded)
	t.Logf("%d committed, %d rolled back; %d delivered twice, %d false errors, %d handler failures, %d recorded",
		w.total(), w.undone, tr.doubled, tr.lied, injected, recorded)
}

// relay starts a forwarder in a handle of its own.
func (w *world) relay(t *testing.T, database *testdb.Database, tr *trouble) *relay {
	t.Helper()
	r, err := startRelay(w.broker, database, database.Open(t), tr.decorate, nil)
	require.NoError(t, err)
	return r
}

// awaitStage waits until so many parts of the messages have been applied by the ledger.
func (w *world) awaitStage(t *testing.T, stage, intents int) {
	t.Helper()
	want := intents * 4 / 5 * stage / stages // one of five is rolled back
	require.Eventually(t, func() bool { return w.applied(t, "ledger") >= want }, patience, 5*time.Millisecond,
		"stage %d does not come", stage)
}
