package oteltracing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/tracing/oteltracing"
)

// nowhere is a publisher that costs nothing.
type nowhere struct{}

func (nowhere) Publish(string, ...*message.Message) error { return nil }

func (nowhere) Close() error { return nil }

// configs are a program that has set no provider, and one that records each span and exports none.
func configs() map[string]oteltracing.Config {
	return map[string]oteltracing.Config{
		"no provider": {},
		"recording":   {TracerProvider: sdktrace.NewTracerProvider(), Propagator: w3c},
	}
}

// mostAllocations bounds what a message costs in a program without a provider. With the race
// detector it may cost one more.
const mostAllocations = 8

// It counts the allocations of the process, so it does not run in parallel.
func TestTracing_without_a_provider_costs_next_to_nothing(t *testing.T) {
	tracing := oteltracing.New(oteltracing.Config{})
	publisher, err := tracing.DecoratePublisher(nowhere{})
	require.NoError(t, err)
	msg := message.NewMessage(postbox.NewMessageID(), nil)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _ = publisher.Publish("orders", msg) }), float64(mostAllocations))
	require.Empty(t, msg.Metadata)
	handler := tracing.Middleware(done)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = handler(msg) }), float64(mostAllocations))
}

func BenchmarkPublish(b *testing.B) {
	for name, config := range configs() {
		b.Run(name, func(b *testing.B) {
			publisher, err := oteltracing.New(config).DecoratePublisher(nowhere{})
			require.NoError(b, err)
			msg := message.NewMessage(postbox.NewMessageID(), nil)
			b.ReportAllocs()
			for b.Loop() {
				_ = publisher.Publish("orders", msg)
			}
		})
	}
}

func BenchmarkMiddleware(b *testing.B) {
	for name, config := range configs() {
		b.Run(name, func(b *testing.B) {
			handler := oteltracing.New(config).Middleware(done)
			msg := message.NewMessage(postbox.NewMessageID(), nil)
			msg.Metadata.Set("traceparent", parentOf)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = handler(msg)
			}
		})
	}
}
