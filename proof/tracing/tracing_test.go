package tracing_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

func TestTracing_GoChannel_one_trace_leads_from_the_request_to_the_payment(t *testing.T) {
	t.Parallel()
	follow(t, func(*testing.T) broker { return goChannel() })
}

func TestTracing_Kafka_one_trace_leads_from_the_request_to_the_payment(t *testing.T) {
	t.Parallel()
	address := testservice.Address(t, testservice.KafkaVariable)
	follow(t, func(t *testing.T) broker { t.Helper(); return apacheKafka(t, address) })
}

// expected is what a span must be. The parent, or the link if spans have no parents, is another one
// by its place in the list, which is in the order of the way.
type expected struct {
	name    string
	kind    trace.SpanKind
	system  string
	created int // where the message was created
	within  int // the span around it, or none
	failed  bool
}

const none = -1

func follow(t *testing.T, connect func(t *testing.T) broker) {
	t.Helper()
	for name, parent := range map[string]bool{"as parent": true, "as link": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shop := open(t, connect(t), parent)
			shop.order(t)
			shop.close(t)
			requireWay(t, shop.spans.GetSpans(), shop.broker, parent)
		})
	}
}

func requireWay(t *testing.T, spans tracetest.SpanStubs, on broker, parent bool) {
	t.Helper()
	way := []expected{
		{name: "POST /orders", kind: trace.SpanKindServer, created: none, within: none},
		{name: "send " + on.orders, kind: trace.SpanKindProducer, system: "postbox", created: none, within: 0},                  // the outbox
		{name: "send " + on.orders, kind: trace.SpanKindClient, system: on.system, created: 1, within: none},                    // the forwarder
		{name: "process " + on.orders, kind: trace.SpanKindConsumer, system: on.system, created: 1, within: none, failed: true}, // the inbox, which fails at first
		{name: "process " + on.orders, kind: trace.SpanKindConsumer, system: on.system, created: 1, within: none},               // and then checks the order
		{name: "send " + on.payments, kind: trace.SpanKindProducer, system: "postbox", created: none, within: 4},                // the outbox, with what it returned
		{name: "send " + on.payments, kind: trace.SpanKindClient, system: on.system, created: 5, within: none},                  // the forwarder
		{name: "process " + on.payments, kind: trace.SpanKindConsumer, system: on.system, created: 5, within: none},             // stores it in the queue
		{name: "process pay", kind: trace.SpanKindConsumer, system: "postbox", created: 5, within: none},                        // the queue
		{name: "take the money", kind: trace.SpanKindInternal, created: none, within: 8},                                        // in the handler
	}
	require.Len(t, spans, len(way), "%v", spans)
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	for i, want := range way {
		span := spans[i]
		require.Equal(t, want.name, span.Name, i)
		require.Equal(t, want.kind, span.SpanKind, i)
		require.Equal(t, want.failed, span.Status.Code == codes.Error, i)
		requireRelations(t, spans, i, want, parent)
		if want.system != "" {
			requireAttributes(t, span, want)
		}
	}
}

func requireRelations(t *testing.T, spans tracetest.SpanStubs, i int, want expected, parent bool) {
	t.Helper()
	span := spans[i]
	if want.created == none {
		require.Empty(t, span.Links, i)
	} else {
		require.Len(t, span.Links, 1, i)
		require.Equal(t, spans[want.created].SpanContext.SpanID(), span.Links[0].SpanContext.SpanID(), i)
		require.Equal(t, spans[want.created].SpanContext.TraceID(), span.Links[0].SpanContext.TraceID(), i)
	}
	switch {
	case want.within != none:
		require.Equal(t, spans[want.within].SpanContext.SpanID(), span.Parent.SpanID(), i)
	case want.created != none && parent:
		require.Equal(t, spans[want.created].SpanContext.SpanID(), span.Parent.SpanID(), i)
	default:
		require.False(t, span.Parent.IsValid(), i)
	}
	if parent {
		require.Equal(t, spans[0].SpanContext.TraceID(), span.SpanContext.TraceID(), i)
	}
}

func requireAttributes(t *testing.T, span tracetest.SpanStub, want expected) {
	t.Helper()
	got := map[string]any{}
	for _, attribute := range span.Attributes {
		got[string(attribute.Key)] = attribute.Value.AsInterface()
	}
	operation := "process"
	if want.kind != trace.SpanKindConsumer {
		operation = "send"
	}
	require.Equal(t, operation, got["messaging.operation.name"])
	require.Equal(t, operation, got["messaging.operation.type"])
	require.Equal(t, want.system, got["messaging.system"])
	require.Equal(t, want.name, operation+" "+got["messaging.destination.name"].(string))
	require.NotEmpty(t, got["messaging.message.id"])
	require.GreaterOrEqual(t, got["postbox.message.wait"], 0.0)
	require.Equal(t, want.failed, got["error.type"] != nil)
}
