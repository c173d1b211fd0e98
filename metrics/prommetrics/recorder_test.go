package prommetrics_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics"
	"github.com/postbox-go/watermill-postbox/queue"
)

var errBroken = errors.New("broken")

// broker refuses the topic "broken".
type broker struct{}

func (broker) Publish(topic string, _ ...*message.Message) error {
	if topic == "broken" {
		return postbox.Permanent(errBroken)
	}
	return nil
}

func (broker) Close() error { return nil }

func describe(d *testdb.Database) postbox.Database {
	return postbox.Database{DB: d.DB, Dialect: d.Dialect}
}

func newRecorder(t *testing.T, database postbox.Database, config prommetrics.Config) (*prommetrics.Recorder, *prometheus.Registry) {
	t.Helper()
	recorder, err := prommetrics.New(database, config)
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(recorder))
	return recorder, registry
}

// scraped returns what a scrape gets.
func scraped(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	answer := httptest.NewRecorder()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	require.NoError(t, err)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, request)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	return answer.Body.String()
}

// value returns the value of a series, which is named as Prometheus writes it; found is false if
// there is none.
func value(t *testing.T, registry *prometheus.Registry, series string) (text string, found bool) {
	t.Helper()
	for line := range strings.Lines(scraped(t, registry)) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), series+" "); found {
			return text, true
		}
	}
	return "", false
}

func eventually(t *testing.T, registry *prometheus.Registry, series, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, _ := value(t, registry, series)
		return got == want
	}, 30*time.Second, testdb.PollPause, "%s is not %s", series, want)
}

func TestRecorder_shows_what_an_outbox_an_inbox_and_a_queue_do(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, d *testdb.Database) {
		database := describe(d.Migrate(t))
		recorder, registry := newRecorder(t, database, prommetrics.Config{})
		database.Metrics = recorder

		publisher, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{AllowAutocommit: true}, nil)
		require.NoError(t, err)
		require.NoError(t, publisher.Publish("orders", message.NewMessage("1", nil), message.NewMessage("2", nil)))
		require.NoError(t, publisher.Publish("broken", message.NewMessage("3", nil)))
		eventually(t, registry, `postbox_backlog_messages{kind="outbox",name="outbox",state="pending"}`, "3")

		f, err := forwarder.New(database, broker{}, forwarder.Config{}, nil)
		require.NoError(t, err)
		run(t, f.Run)

		store, err := inboxstore.New(database, inboxstore.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		for range 2 {
			_, err = store.Once(t.Context(), inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: "1"}, func(context.Context) error { return nil })
			require.NoError(t, err)
			_, err = store.Defer(t.Context(), "later", inboxstore.Key{Consumer: "shipping", Topic: "orders", MessageID: "1"}, message.NewMessage("1", nil))
			require.NoError(t, err)
		}
		_, err = store.Once(t.Context(), inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: "2"}, func(context.Context) error { return errBroken })
		require.ErrorIs(t, err, errBroken)
		subscriber, err := queue.NewSubscriber(store, queue.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = subscriber.Close() })
		handled, err := subscriber.Subscribe(t.Context(), "later")
		require.NoError(t, err)
		(<-handled).Ack()

		for series, want := range map[string]string{
			`postbox_messages_stored_total{kind="outbox",name="outbox",topic="orders"}`:               "2",
			`postbox_messages_ended_total{kind="outbox",name="outbox",outcome="done",topic="orders"}`: "2",
			`postbox_messages_ended_total{kind="outbox",name="outbox",outcome="dead",topic="orders"}`: "0",
			`postbox_messages_ended_total{kind="outbox",name="outbox",outcome="dead",topic="broken"}`: "1",
			`postbox_message_latency_seconds_count{kind="outbox",name="outbox",topic="orders"}`:       "2",
			`postbox_circuit_open{kind="outbox",name="outbox",topic="orders"}`:                        "0",
			`postbox_lanes_held{kind="outbox",name="outbox"}`:                                         "32",
			`postbox_inbox_deliveries_total{consumer="billing",result="handled",topic="orders"}`:      "1",
			`postbox_inbox_deliveries_total{consumer="billing",result="duplicate",topic="orders"}`:    "1",
			`postbox_inbox_deliveries_total{consumer="billing",result="failed",topic="orders"}`:       "1",
			`postbox_inbox_deliveries_total{consumer="shipping",result="stored",topic="orders"}`:      "1",
			`postbox_messages_stored_total{kind="queue",name="later",topic="later"}`:                  "1",
			`postbox_messages_ended_total{kind="queue",name="later",outcome="done",topic="later"}`:    "1",
			`postbox_backlog_messages{kind="outbox",name="outbox",state="pending"}`:                   "0",
			`postbox_dead_letters_messages{kind="outbox",name="outbox"}`:                              "1",
			`postbox_processes{kind="queue",name="later"}`:                                            "1",
			`postbox_database_up`: "1",
			`messaging_process_duration_seconds_count{error_type="",kind="queue",messaging_destination_name="later",messaging_operation_name="process",messaging_system="postbox",name="later"}`: "1",
		} {
			eventually(t, registry, series, want)
		}
		_, found := value(t, registry, `messaging_client_operation_duration_seconds_count{error_type="_OTHER",kind="outbox",messaging_destination_name="broken",messaging_operation_name="send",messaging_system="postbox",name="outbox"}`)
		require.True(t, found)
	})
}

// run runs something until the end of the test.
func run(t *testing.T, do func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- do(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestRecorder_meets_the_rules_of_Prometheus(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	recorder, _ := newRecorder(t, describe(database), prommetrics.Config{})
	recorder.Record(instruments.Stored, 1, "outbox", "outbox", "bytes \xff that are not UTF-8")
	recorder.Series(instruments.Attempts, "outbox", "outbox", "bytes \xff that are not UTF-8").Record(1)
	recorder.Series(instruments.Backlog, "outbox", "outbox", "pending").Record(1) // is counted in the database
	problems, err := testutil.CollectAndLint(recorder)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestRecorder_without_a_database_still_shows_what_the_process_measured(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(t *testing.T, d *testdb.Database) (end func()){
		"closed": func(t *testing.T, d *testdb.Database) func() {
			t.Helper()
			require.NoError(t, d.DB.Close())
			return func() {}
		},
		"hangs": func(t *testing.T, d *testdb.Database) func() { // no connection is free
			t.Helper()
			d.DB.SetMaxOpenConns(1)
			conn, err := d.DB.Conn(t.Context())
			require.NoError(t, err)
			return func() { _ = conn.Close() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := testdb.SQLite(t).Migrate(t)
			recorder, registry := newRecorder(t, describe(d), prommetrics.Config{Timeout: 10 * time.Millisecond})
			recorder.Record(instruments.Stored, 1, "outbox", "outbox", "orders")
			end := breakIt(t, d)
			for range 10 { // also when earlier scrapes have not ended
				up, found := value(t, registry, "postbox_database_up")
				require.True(t, found)
				require.Equal(t, "0", up)
				stored, _ := value(t, registry, `postbox_messages_stored_total{kind="outbox",name="outbox",topic="orders"}`)
				require.Equal(t, "1", stored)
			}
			end()
			if name == "hangs" {
				eventually(t, registry, "postbox_database_up", "1")
			}
		})
	}
}

func TestRecorder_of_processes_alone_does_not_count(t *testing.T) {
	t.Parallel()
	recorder, registry := newRecorder(t, describe(testdb.SQLite(t)), prommetrics.Config{ProcessOnly: true})
	recorder.Record(instruments.LanesHeld, 3, "queue", "later")
	held, _ := value(t, registry, `postbox_lanes_held{kind="queue",name="later"}`)
	require.Equal(t, "3", held)
	_, found := value(t, registry, "postbox_database_up")
	require.False(t, found)
}

func TestNew_wants_a_database(t *testing.T) {
	t.Parallel()
	_, err := prommetrics.New(postbox.Database{}, prommetrics.Config{})
	require.ErrorContains(t, err, "dialect is missing")
}
