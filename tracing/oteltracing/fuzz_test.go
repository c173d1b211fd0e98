package oteltracing_test

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

// Whatever the metadata holds, a message goes through as it is, and its handler gets it.
func FuzzContext_never_fails_or_changes_a_message(f *testing.F) {
	for _, text := range hostile() {
		if len(text) < 1<<10 {
			f.Add(text, text, text, text)
		}
	}
	f.Add(parentOf, "a=1,b=2", "k=v;p=1,l=w", "2026-01-01T00:00:00Z")
	f.Fuzz(func(t *testing.T, parent, state, baggage, sent string) {
		tracing, spans := record(t, oteltracing.Config{Parent: true})
		inner := &captured{}
		publisher, err := tracing.DecoratePublisher(inner)
		require.NoError(t, err)
		metadata := message.Metadata{"traceparent": parent, "tracestate": state, "baggage": baggage, oteltracing.SentAt: sent}
		msg := message.NewMessage(parent, nil)
		msg.Metadata = maps.Clone(metadata)
		require.NoError(t, publisher.Publish(state, msg))
		got := inner.messages[0].Metadata
		for key, value := range metadata {
			if value != "" {
				require.Equal(t, value, got[key])
			}
		}
		handled := false
		_, err = tracing.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			handled = trace.SpanFromContext(msg.Context()).IsRecording()
			return nil, nil
		})(msg)
		require.NoError(t, err)
		require.True(t, handled)
		require.Equal(t, context.Background(), msg.Context())
		require.Len(t, spans.GetSpans(), 2)
	})
}
