package oteltracing_test

import (
	"context"
	"database/sql"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/router"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

// parentOf is a context that came from elsewhere.
const parentOf = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestDecoratePublisher_an_outbox_still_writes_in_the_transaction(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{System: "kafka"})
	s := newShop(t, tracing)
	require.True(t, given.PublishesInTx(s.outbox))
	_, err := router.New(nil, router.Config{Store: s.store, Outbox: s.outbox}, nil)
	require.NoError(t, err, "a router accepts it as its outbox")

	count := func() (n int) {
		require.NoError(t, s.database.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM postbox_messages").Scan(&n))
		return n
	}
	msg := message.NewMessage(postbox.NewMessageID(), []byte("order"))
	msg.Metadata.Set(postbox.MetadataCorrelationID, "request 7")
	request := spans.during("POST /orders", func(ctx context.Context) {
		require.ErrorIs(t, postbox.InTx(ctx, s.database.DB, func(ctx context.Context, _ *sql.Tx) error {
			msg.SetContext(ctx)
			require.NoError(t, s.outbox.Publish("orders", msg))
			return io.EOF
		}), io.EOF)
		require.Zero(t, count(), "it was rolled back")
		require.NoError(t, s.publish(ctx, msg))
	})
	require.Equal(t, 1, count())
	require.Equal(t, message.Metadata{postbox.MetadataCorrelationID: "request 7"}, msg.Metadata, "the message of the caller stays as it is")
	require.ErrorIs(t, s.outbox.Publish("orders", message.NewMessage("1", nil)), postbox.ErrNoTransaction)

	sent := spans.named("send orders")
	require.Len(t, sent, 3)
	require.Equal(t, codes.Unset, sent[1].Status.Code)
	require.Equal(t, codes.Error, sent[2].Status.Code)
	require.Equal(t, trace.SpanKindProducer, sent[1].SpanKind)
	require.Equal(t, request.SpanID(), sent[1].Parent.SpanID())
	attributes, wait := attributesOf(sent[1])
	require.Equal(t, map[string]any{
		"messaging.system": "postbox", "messaging.operation.name": "send", "messaging.operation.type": "send",
		"messaging.destination.name": "orders", "messaging.message.id": msg.UUID, "messaging.message.conversation_id": "request 7",
	}, attributes)
	require.GreaterOrEqual(t, wait, 0.0)

	var metadata string
	require.NoError(t, s.database.DB.QueryRowContext(t.Context(), "SELECT metadata FROM postbox_messages").Scan(&metadata))
	require.Contains(t, metadata, sent[1].SpanContext.SpanID().String())
	require.NotContains(t, metadata, oteltracing.SentAt, "the UUID has the time")
}

// These are what another program, or an attacker, may put in the place of a context.
func hostile() map[string]string {
	return map[string]string{
		"empty version":   "-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"zero trace":      "00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"zero span":       "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"capitals":        "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
		"reserved":        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"too short":       "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
		"too long":        parentOf + "-more",
		"a word":          "traceparent",
		"not UTF-8":       "\xff\xfe\x00",
		"a line":          parentOf + "\r\nx: y",
		"a script":        "<script>alert(1)</script>",
		"a megabyte":      strings.Repeat("0", 1<<20),
		"a million parts": strings.Repeat("-", 1<<20),
	}
}

func TestDecoratePublisher_keeps_every_byte_that_a_message_has(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	inner := &captured{}
	publisher, err := tracing.DecoratePublisher(inner)
	require.NoError(t, err)
	cases := map[string]message.Metadata{
		"a good one":              {"traceparent": parentOf, "tracestate": "a=1", "baggage": "k=v;p", "other": "x"},
		"a good one alone":        {"traceparent": parentOf},
		"a state without context": {"tracestate": "a=1"},
	}
	for name, text := range hostile() {
		cases[name] = message.Metadata{"traceparent": text, "tracestate": text, "baggage": text}
	}
	for name, metadata := range cases {
		spans.Reset()
		msg := message.NewMessage("1", []byte("x"))
		msg.Metadata = maps.Clone(metadata)
		spans.during("request", func(ctx context.Context) {
			msg.SetContext(ctx)
			require.NoError(t, publisher.Publish("orders", msg), name)
		})
		got := inner.messages[len(inner.messages)-1]
		require.Equal(t, metadata, got.Metadata, name)
		require.Equal(t, metadata, msg.Metadata, name)
		require.Equal(t, message.Payload("x"), got.Payload)
		span := spans.named("send orders")[0]
		require.Equal(t, codes.Unset, span.Status.Code, name)
		if strings.HasPrefix(name, "a good one") {
			require.Len(t, span.Links, 1, name)
			require.Equal(t, trace.SpanKindClient, span.SpanKind, name)
		} else {
			require.Empty(t, span.Links, name)
		}
	}
}

func TestDecoratePublisher_adds_the_context_to_baggage_that_is_there(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	inner := &captured{}
	publisher, err := tracing.DecoratePublisher(inner)
	require.NoError(t, err)
	member, err := baggage.NewMember("tenant", "seven")
	require.NoError(t, err)
	tenant, err := baggage.New(member)
	require.NoError(t, err)
	before := time.Now().Add(-time.Second)
	spans.during("request", func(ctx context.Context) {
		ctx = baggage.ContextWithBaggage(ctx, tenant)
		for _, own := range []string{"", "k=v;p"} {
			msg := message.NewMessageWithContext(ctx, "1", nil)
			if own != "" {
				msg.Metadata.Set("baggage", own)
			}
			require.NoError(t, publisher.Publish("orders", msg))
		}
	})
	require.Equal(t, "tenant=seven", inner.messages[0].Metadata["baggage"])
	require.Equal(t, "k=v;p", inner.messages[1].Metadata["baggage"])
	for i, span := range spans.named("send orders") {
		require.Contains(t, inner.messages[i].Metadata["traceparent"], span.SpanContext.SpanID().String())
		sent, err := time.Parse(time.RFC3339Nano, inner.messages[i].Metadata[oteltracing.SentAt])
		require.NoError(t, err, "the UUID has no time")
		require.WithinRange(t, sent, before, time.Now())
	}
}

// The sender of a request chooses its baggage and tracestate. Neither may make a message too large.
func TestDecoratePublisher_adds_at_most_a_KiB_to_a_message(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	s := newShop(t, tracing)
	publisher, err := forwarder.NewPublisher(s.database, forwarder.PublisherConfig{MaxPayload: 1<<10 + 10}, nil)
	require.NoError(t, err)
	small, err := tracing.DecoratePublisher(publisher)
	require.NoError(t, err)
	state := "a=" + strings.Repeat("<", 256)
	for name, request := range map[string]struct {
		baggage, state string
		kept           []string
	}{
		"little":          {"tenant=" + strings.Repeat("7", 500), state, []string{"traceparent", "tracestate", "baggage", oteltracing.SentAt}},
		"much baggage":    {"tenant=" + strings.Repeat("7", 4000), state, []string{"traceparent", "tracestate", oteltracing.SentAt}},
		"much state":      {"", state + strings.Repeat(","+strings.Repeat("x", 200)+state, 3), []string{"traceparent", oteltracing.SentAt}},
		"much of both":    {"tenant=" + strings.Repeat("7", 4000), state + ",b" + state + ",c" + state + ",d" + state, []string{"traceparent", oteltracing.SentAt}},
		"a byte too many": {"k=" + strings.Repeat("7", 1024-45-66-9+1), "", []string{"traceparent", oteltracing.SentAt}},
		"just enough":     {"k=" + strings.Repeat("7", 1024-45-66-9), "", []string{"traceparent", "baggage", oteltracing.SentAt}},
	} {
		inner := &captured{}
		publisher, err := tracing.DecoratePublisher(inner)
		require.NoError(t, err)
		ctx := w3c.Extract(t.Context(), propagation.MapCarrier{"traceparent": parentOf, "tracestate": request.state, "baggage": request.baggage})
		require.NoError(t, publisher.Publish("orders", message.NewMessageWithContext(ctx, "1", nil)))
		added := inner.messages[0].Metadata
		require.ElementsMatch(t, request.kept, slices.Collect(maps.Keys(added)), name)
		size := 0
		for key, value := range added {
			size += len(key) + len(value)
		}
		require.LessOrEqual(t, size, 1024, name)
		require.NoError(t, postbox.InTx(ctx, s.database.DB, func(ctx context.Context, _ *sql.Tx) error {
			return small.Publish("orders", message.NewMessageWithContext(ctx, "1", []byte("ten bytes.")))
		}), name)
	}
	require.NotEmpty(t, spans.named("send orders"))
}

// A handler may publish one message to two topics: each copy is created by itself.
func TestDecoratePublisher_two_destinations_of_one_message_have_a_context_each(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	inner := &captured{}
	publisher, err := tracing.DecoratePublisher(inner)
	require.NoError(t, err)
	msg := message.NewMessage("1", nil)
	request := spans.during("request", func(ctx context.Context) {
		msg.SetContext(ctx)
		require.NoError(t, publisher.Publish("orders", msg))
		require.NoError(t, publisher.Publish("audit", msg))
	})
	for i, name := range []string{"send orders", "send audit"} {
		span := spans.named(name)[0]
		require.Equal(t, request.SpanID(), span.Parent.SpanID())
		require.Empty(t, span.Links)
		require.Contains(t, inner.messages[i].Metadata["traceparent"], span.SpanContext.SpanID().String())
	}
}

// A copy that is a message of its own is created where and when it is published, not where the old
// message was.
func TestDetach_makes_a_copy_a_message_of_its_own(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{})
	inner := &captured{}
	publisher, err := tracing.DecoratePublisher(inner)
	require.NoError(t, err)
	msg := message.NewMessage("1", nil)
	msg.Metadata = message.Metadata{"traceparent": parentOf, "tracestate": "a=1", "baggage": "tenant=seven", oteltracing.SentAt: "2026-01-01T00:00:00Z", "other": "x"}
	before := maps.Clone(msg.Metadata)
	_, err = tracing.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		copied := msg.CopyWithContext()
		copied.UUID = "2"
		tracing.Detach(copied)
		require.Equal(t, message.Metadata{"other": "x"}, copied.Metadata)
		return nil, publisher.Publish("bills", copied)
	})(msg)
	require.NoError(t, err)
	require.Equal(t, before, msg.Metadata)
	sent := spans.named("send bills")[0]
	require.Equal(t, trace.SpanKindProducer, sent.SpanKind)
	require.Empty(t, sent.Links)
	_, wait := attributesOf(sent)
	require.InDelta(t, -1, wait, 0)
	got := inner.messages[0].Metadata
	require.Contains(t, got["traceparent"], sent.SpanContext.SpanID().String())
	require.NotEqual(t, before[oteltracing.SentAt], got[oteltracing.SentAt])
	require.Equal(t, "tenant=seven", got["baggage"], "from the context of the handler")
	tracing.Detach(&message.Message{})
}

func TestDecoratePublisher_a_batch_has_a_link_to_each_message(t *testing.T) {
	t.Parallel()
	for _, parent := range []bool{false, true} {
		tracing, spans := record(t, oteltracing.Config{System: "kafka", Parent: parent})
		inner := &captured{}
		publisher, err := tracing.DecoratePublisher(inner)
		require.NoError(t, err)
		var first, second trace.SpanContext
		first = spans.during("request", func(ctx context.Context) {
			require.NoError(t, publisher.Publish("orders", message.NewMessageWithContext(ctx, "1", nil), message.NewMessageWithContext(ctx, "2", nil)))
		})
		second = spans.during("request", func(ctx context.Context) {
			require.NoError(t, publisher.Publish("orders", message.NewMessageWithContext(ctx, "3", nil)))
		})
		created := spans.named("send orders")
		require.Equal(t, int64(2), value(created[0], "messaging.batch.message_count"))
		require.Nil(t, value(created[0], "messaging.message.id"))
		require.Nil(t, value(created[1], "messaging.batch.message_count"))
		require.Equal(t, []trace.TraceID{first.TraceID(), second.TraceID()}, []trace.TraceID{created[0].SpanContext.TraceID(), created[1].SpanContext.TraceID()})

		// A forwarder publishes them without a span of its own.
		stored := make([]*message.Message, len(inner.messages))
		for i, msg := range inner.messages {
			stored[i] = msg.Copy()
		}
		spans.Reset()
		require.NoError(t, publisher.Publish("orders", stored...))
		require.NoError(t, publisher.Publish("orders", stored[:2]...))
		sent := spans.named("send orders")
		require.Equal(t, []trace.SpanID{created[0].SpanContext.SpanID(), created[0].SpanContext.SpanID(), created[1].SpanContext.SpanID()}, linked(sent[0]))
		require.Equal(t, "3", sent[0].Links[2].Attributes[0].Value.AsString())
		require.Equal(t, trace.SpanKindClient, sent[0].SpanKind)
		require.False(t, sent[0].Parent.IsValid(), "the messages are of two traces")
		require.Equal(t, parent, sent[1].Parent.IsValid(), "the messages are of one span")
		require.Equal(t, "kafka", value(sent[0], "messaging.system"))
	}
}

// A relay may publish messages of several requests with one call. The span has one parent, and
// links to the other requests.
func TestDecoratePublisher_has_a_link_to_each_other_request(t *testing.T) {
	t.Parallel()
	for name, parent := range map[string]bool{"parent": true, "link": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracing, spans := record(t, oteltracing.Config{Parent: parent})
			publisher, err := tracing.DecoratePublisher(&captured{})
			require.NoError(t, err)
			var contexts []context.Context
			first := spans.during("one", func(ctx context.Context) { contexts = append(contexts, ctx) })
			second := spans.during("two", func(ctx context.Context) { contexts = append(contexts, ctx) })
			created, err := trace.SpanIDFromHex("b7ad6b7169203331")
			require.NoError(t, err)
			passed := message.NewMessageWithContext(contexts[1], "4", nil)
			passed.Metadata.Set("traceparent", parentOf)
			require.NoError(t, publisher.Publish("orders",
				message.NewMessageWithContext(contexts[0], "1", nil), message.NewMessageWithContext(contexts[0], "2", nil),
				message.NewMessageWithContext(contexts[1], "3", nil), passed, message.NewMessage("5", nil)))
			sent := spans.named("send orders")[0]
			require.Equal(t, first.SpanID(), sent.Parent.SpanID())
			require.Equal(t, []trace.SpanID{created, second.SpanID(), second.SpanID()}, linked(sent))
			require.Equal(t, second.TraceID(), sent.Links[1].SpanContext.TraceID())
			require.Equal(t, "3", sent.Links[1].Attributes[0].Value.AsString())
			require.Equal(t, trace.SpanKindProducer, sent.SpanKind)

			spans.Reset()
			alone := message.NewMessage("6", nil)
			alone.Metadata.Set("traceparent", parentOf)
			require.NoError(t, publisher.Publish("orders", alone, passed))
			sent = spans.named("send orders")[0]
			require.Equal(t, parent, sent.Parent.SpanID() == created, "both were created in one span")
			require.Equal(t, []trace.SpanID{created, created, second.SpanID()}, linked(sent))
			require.Equal(t, trace.SpanKindClient, sent.SpanKind, "each message has a context")
		})
	}
}

type publisherFunc func() error

func (f publisherFunc) Publish(string, ...*message.Message) error { return f() }

func (publisherFunc) Close() error { return nil }
