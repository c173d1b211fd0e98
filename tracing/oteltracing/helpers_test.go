package oteltracing_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	_ "modernc.org/sqlite"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

const (
	// patience is how long a test waits for what should happen soon, and tick how often it looks.
	patience = 30 * time.Second
	tick     = 10 * time.Millisecond
)

// w3c is the usual propagator.
var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// recorded has the spans of a test.
type recorded struct {
	*tracetest.InMemoryExporter

	t        *testing.T
	provider *sdktrace.TracerProvider
}

// record returns a Tracing whose spans a test can look at.
func record(t *testing.T, config oteltracing.Config) (*oteltracing.Tracing, recorded) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	config.TracerProvider, config.Propagator = provider, w3c
	return oteltracing.New(config), recorded{exporter, t, provider}
}

// during runs a function within a span, as that of an HTTP request, and returns the span.
func (r recorded) during(name string, run func(ctx context.Context)) trace.SpanContext {
	r.t.Helper()
	ctx, span := r.provider.Tracer("test").Start(context.Background(), name, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	run(ctx)
	return span.SpanContext()
}

// named returns the ended spans with a name, in the order in which they began.
func (r recorded) named(name string) []tracetest.SpanStub {
	r.t.Helper()
	found := slices.DeleteFunc(r.GetSpans(), func(span tracetest.SpanStub) bool { return span.Name != name })
	slices.SortStableFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return found
}

// await returns the first n spans with a name when there are as many.
func (r recorded) await(name string, n int) []tracetest.SpanStub {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return len(r.named(name)) >= n }, patience, tick, "%d spans %q; there are: %v", n, name, r.GetSpans())
	return r.named(name)
}

// linked returns the ids of the spans that a span has links to.
func linked(span tracetest.SpanStub) []trace.SpanID {
	ids := make([]trace.SpanID, len(span.Links))
	for i, link := range span.Links {
		ids[i] = link.SpanContext.SpanID()
	}
	return ids
}

// attributesOf returns the attributes of a span without the time that a message waited, which
// differs from run to run, and that time.
func attributesOf(span tracetest.SpanStub) (attributes map[string]any, wait float64) {
	attributes, wait = map[string]any{}, -1
	for _, attribute := range span.Attributes {
		if attribute.Key == oteltracing.Wait {
			wait = attribute.Value.AsFloat64()
			continue
		}
		attributes[string(attribute.Key)] = attribute.Value.AsInterface()
	}
	return attributes, wait
}

// value returns an attribute of a span.
func value(span tracetest.SpanStub, key attribute.Key) any {
	for _, attribute := range span.Attributes {
		if attribute.Key == key {
			return attribute.Value.AsInterface()
		}
	}
	return nil
}

// captured is a publisher that keeps the messages.
type captured struct {
	mu       sync.Mutex
	err      error
	messages []*message.Message
}

func (c *captured) Publish(_ string, messages ...*message.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages = append(c.messages, messages...)
	return c.err
}

func (c *captured) Close() error { return nil }

// shop is a service on a SQLite file.
type shop struct {
	database postbox.Database
	outbox   message.Publisher // decorated
	store    *inboxstore.Store
}

func newShop(t *testing.T, tracing *oteltracing.Tracing) *shop {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(file)+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	s := &shop{database: postbox.Database{DB: db, Dialect: postbox.SQLite}}
	require.NoError(t, postbox.Migrate(t.Context(), s.database))
	publisher, err := forwarder.NewPublisher(s.database, forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	s.outbox, err = tracing.DecoratePublisher(publisher)
	require.NoError(t, err)
	s.store, err = inboxstore.New(s.database, inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.store.Close())
		require.NoError(t, s.outbox.Close())
		require.NoError(t, db.Close())
	})
	return s
}

// publish writes messages for the topic orders to the outbox, in a transaction.
func (s *shop) publish(ctx context.Context, messages ...*message.Message) error {
	return postbox.InTx(ctx, s.database.DB, func(ctx context.Context, _ *sql.Tx) error {
		for _, msg := range messages {
			msg.SetContext(ctx)
		}
		return s.outbox.Publish("orders", messages...)
	})
}

// background runs a part of the service until the test ends.
func background(t *testing.T, run func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}
