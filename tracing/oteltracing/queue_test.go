package oteltracing_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

func TestMiddleware_a_deferred_message_has_a_span_when_it_is_stored_and_when_it_is_handled(t *testing.T) {
	t.Parallel()
	for name, transactional := range map[string]bool{"transactional": true, "not transactional": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracing, spans := record(t, oteltracing.Config{System: "memory", Parent: true})
			s := serve(t, tracing, func(s *served) {
				_, err := s.router.AddQueueHandler("billing", "orders", s.broker, "", failing(1, done),
					router.QueueConfig{Worker: queue.Config{Retry: quick(5), Transactional: transactional, Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: tick}}})
				require.NoError(t, err)
			})
			request := spans.during("POST /orders", func(ctx context.Context) { s.order(ctx, t) })
			handled := spans.await("process billing", 2)
			stored := spans.await("process orders", 1)[0]
			created := spans.named("send orders")[0].SpanContext.SpanID()
			require.Equal(t, "memory", value(stored, "messaging.system"))
			require.Equal(t, "billing_store", value(stored, oteltracing.Handler))
			require.Nil(t, value(stored, oteltracing.SourceTopic))
			for i, span := range handled {
				require.Equal(t, "postbox", value(span, "messaging.system"))
				require.Equal(t, "billing", value(span, "messaging.destination.name"))
				require.Equal(t, "orders", value(span, oteltracing.SourceTopic))
				require.Equal(t, i == 0, span.Status.Code == codes.Error)
				require.Equal(t, created, span.Parent.SpanID())
				require.Equal(t, request.TraceID(), span.SpanContext.TraceID())
			}
		})
	}
}

// A dead letter, its copy in the outbox, and the message that an operator requeues are of the trace
// that the message began in.
func TestMetadata_survives_a_dead_letter_and_a_requeue(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{Parent: true})
	s := serve(t, tracing, func(s *served) {
		_, err := s.router.AddQueueHandler("billing", "orders", s.broker, "", failing(2, done), router.QueueConfig{Worker: queue.Config{
			Retry: quick(2), Poison: queue.Poison{Outbox: s.outbox, Topic: "dead"}, Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: tick},
		}})
		require.NoError(t, err)
	})
	request := spans.during("POST /orders", func(ctx context.Context) { s.order(ctx, t) })
	spans.await("process billing", 2)
	operator, err := admin.New(s.database, admin.Config{}, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		requeued, err := operator.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.NoError(t, err)
		return requeued == 1
	}, patience, tick)

	handled := spans.await("process billing", 3)
	created := spans.named("send orders")[0].SpanContext
	require.Equal(t, codes.Unset, handled[2].Status.Code)
	require.Equal(t, created.SpanID(), handled[2].Parent.SpanID())
	buried := spans.await("send dead", 1)[0]
	require.Equal(t, []trace.SpanID{created.SpanID()}, linked(buried))
	require.Equal(t, trace.SpanKindClient, buried.SpanKind)
	require.Equal(t, "postbox", value(buried, "messaging.system"))
	for _, span := range append(handled, buried) {
		require.Equal(t, request.TraceID(), span.SpanContext.TraceID())
	}
}

func TestBatchHandler_has_a_link_to_each_message(t *testing.T) {
	t.Parallel()
	tracing, spans := record(t, oteltracing.Config{Parent: true})
	handle := func(ctx context.Context, messages []*message.Message) error {
		require.True(t, trace.SpanFromContext(ctx).IsRecording())
		for _, msg := range messages {
			require.Equal(t, trace.SpanFromContext(ctx), trace.SpanFromContext(msg.Context()))
			if string(msg.Payload) == "poison" {
				return errRefused
			}
		}
		return nil
	}
	s := serve(t, tracing, func(s *served) {
		_, err := s.router.AddBatchHandler("report", "orders", s.broker, tracing.BatchHandler("report", handle), router.BatchConfig{Batch: queue.BatchConfig{
			Size: 3, Worker: queue.Config{Retry: quick(1), Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: tick}},
		}})
		require.NoError(t, err)
	})
	var requests []trace.TraceID
	for _, payload := range []string{"one", "poison", "two"} {
		request := spans.during("POST /orders", func(ctx context.Context) {
			require.NoError(t, s.publish(ctx, message.NewMessage(payload, []byte(payload))))
		})
		requests = append(requests, request.TraceID())
	}
	// The messages have no key, so they may be in any order, and how often a part of the batch is
	// handled depends on it.
	ended := func() (handled int, alone bool) {
		for _, span := range spans.named("process report") {
			if span.Status.Code != codes.Error {
				handled += len(span.Links)
			}
			alone = alone || span.Status.Code == codes.Error && len(span.Links) == 1
		}
		return handled, alone
	}
	require.Eventually(t, func() bool {
		handled, alone := ended()
		return handled == 2 && alone
	}, patience, tick)
	processed := spans.named("process report")
	all := processed[0]
	require.Equal(t, int64(3), value(all, "messaging.batch.message_count"))
	require.Nil(t, value(all, "messaging.message.id"))
	require.Equal(t, codes.Error, all.Status.Code)
	require.False(t, all.Parent.IsValid(), "the messages are of three traces")
	var traces []trace.TraceID
	for _, link := range all.Links {
		traces = append(traces, link.SpanContext.TraceID())
	}
	require.ElementsMatch(t, requests, traces)
	for _, span := range processed[1:] {
		require.Equal(t, len(span.Links) == 1, span.Parent.IsValid(), "a part of one message has it as its parent")
	}
}

// Each message of a batch has its own baggage, and gets its own context back: a part of the batch
// that is handled again may not see the span of the first time.
func TestBatchHandler_each_message_has_its_baggage_in_its_context(t *testing.T) {
	t.Parallel()
	for name, parent := range map[string]bool{"parent": true, "link": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracing, spans := record(t, oteltracing.Config{Parent: parent})
			type key struct{}
			messages, contexts := make([]*message.Message, 3), make([]context.Context, 3)
			for i, tenant := range []string{"one", "two", ""} {
				contexts[i] = context.WithValue(t.Context(), key{}, i)
				messages[i] = message.NewMessageWithContext(contexts[i], tenant, nil)
				if tenant != "" {
					messages[i].Metadata = message.Metadata{"traceparent": parentOf, "baggage": "tenant=" + tenant}
				}
			}
			handler := tracing.BatchHandler("report", func(ctx context.Context, messages []*message.Message) error {
				require.Empty(t, baggage.FromContext(ctx).Members(), "the batch has none")
				for i, msg := range messages {
					require.Equal(t, msg.UUID, baggage.FromContext(msg.Context()).Member("tenant").Value())
					require.Equal(t, trace.SpanFromContext(ctx), trace.SpanFromContext(msg.Context()))
					require.Equal(t, i, msg.Context().Value(key{}))
				}
				slices.Reverse(messages)
				return errRefused
			})
			require.ErrorIs(t, handler(t.Context(), slices.Clone(messages)), errRefused)
			for i, msg := range messages {
				require.Equal(t, contexts[i], msg.Context())
			}
			require.Len(t, spans.named("process report"), 1)
		})
	}
}
