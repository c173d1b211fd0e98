package otelmetrics_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics/otelmetrics"
)

// collected returns the values of all series, by name and attributes. Of a histogram that is the
// number of values.
func collected(t *testing.T, reader *sdk.ManualReader) (values map[string]float64, err error) {
	t.Helper()
	var all metricdata.ResourceMetrics
	err = reader.Collect(t.Context(), &all)
	values = map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(attributes attribute.Set, value float64) {
				values[m.Name+" "+attributes.Encoded(attribute.DefaultEncoder())] = value
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				require.True(t, data.IsMonotonic)
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			default:
				require.Fail(t, fmt.Sprintf("%s has an unknown form: %T", m.Name, data))
			}
		}
	}
	return values, err
}

func newRecorder(t *testing.T, database postbox.Database, config otelmetrics.Config) (*otelmetrics.Recorder, *sdk.ManualReader) {
	t.Helper()
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	config.Provider = provider
	recorder, err := otelmetrics.New(database, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = recorder.Close() })
	return recorder, reader
}

type broker struct{}

func (broker) Publish(string, ...*message.Message) error { return nil }
func (broker) Close() error                              { return nil }

func TestRecorder_gives_OpenTelemetry_what_an_outbox_does(t *testing.T) {
	t.Parallel()
	d := testdb.SQLite(t).Migrate(t)
	database := postbox.Database{DB: d.DB, Dialect: d.Dialect}
	recorder, reader := newRecorder(t, database, otelmetrics.Config{})
	database.Metrics = recorder

	publisher, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{AllowAutocommit: true}, nil)
	require.NoError(t, err)
	require.NoError(t, publisher.Publish("orders", message.NewMessage("1", nil), message.NewMessage("2", nil)))
	f, err := forwarder.New(database, broker{}, forwarder.Config{}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()

	want := map[string]float64{
		"postbox.messages.stored kind=outbox,name=outbox,topic=orders":             2,
		"postbox.messages.ended kind=outbox,name=outbox,outcome=done,topic=orders": 2,
		"postbox.messages.ended kind=outbox,name=outbox,outcome=dead,topic=orders": 0,
		"postbox.message.latency kind=outbox,name=outbox,topic=orders":             2,
		"postbox.circuit.open kind=outbox,name=outbox,topic=orders":                0,
		"postbox.backlog.messages kind=outbox,name=outbox,state=pending":           0,
		"postbox.processes kind=outbox,name=outbox":                                1,
		"postbox.database.up ": 1,
		"messaging.client.operation.duration kind=outbox,messaging.destination.name=orders,messaging.operation.name=send,messaging.system=postbox,name=outbox": 2,
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		values, err := collected(t, reader)
		require.NoError(c, err)
		for series, value := range want {
			got, found := values[series]
			require.True(c, found, series)
			require.InDelta(c, value, got, 0, series)
		}
	}, 30*time.Second, testdb.PollPause)
}

func TestRecorder_without_a_database_still_gives_what_the_process_measured(t *testing.T) {
	t.Parallel()
	d := testdb.SQLite(t)
	recorder, reader := newRecorder(t, postbox.Database{DB: d.DB, Dialect: d.Dialect}, otelmetrics.Config{Timeout: 10 * time.Millisecond})
	recorder.Record(instruments.Stored, 2, "outbox", "outbox", "bytes \xff that are not UTF-8")
	recorder.Series(instruments.Stored, "outbox", "outbox", "bytes \xff that are not UTF-8").Record(1)
	recorder.Series(instruments.Processes, "outbox", "outbox").Record(1) // is counted in the database
	require.NoError(t, d.DB.Close())
	values, err := collected(t, reader)
	require.NoError(t, err, "with an error, the SDK would export nothing of the whole program")
	require.Equal(t, map[string]float64{
		"postbox.messages.stored kind=outbox,name=outbox,topic=bytes \uFFFD that are not UTF-8": 3,
		"postbox.database.up ": 0,
	}, values)
}

func TestRecorder_of_processes_alone_does_not_count(t *testing.T) {
	t.Parallel()
	d := testdb.SQLite(t)
	recorder, reader := newRecorder(t, postbox.Database{DB: d.DB, Dialect: d.Dialect}, otelmetrics.Config{ProcessOnly: true})
	recorder.Record(instruments.LanesHeld, 3, "queue", "later")
	values, err := collected(t, reader)
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"postbox.lanes.held kind=queue,name=later": 3}, values)
}

func TestNew_wants_a_database(t *testing.T) {
	t.Parallel()
	_, err := otelmetrics.New(postbox.Database{}, otelmetrics.Config{})
	require.ErrorContains(t, err, "dialect is missing")
}
