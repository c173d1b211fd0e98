package oteltracing

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/queue"
)

// BatchHandler returns the handler of a batch with a span each time that it runs, which has a link
// to the span in which each message was created. The contexts that the handler gets, its own and
// those of the messages, carry the span. The context of each message carries the baggage of that
// message too. When a batch fails, Postbox handles parts of it, and each part has a span of its
// own.
//
// The name is that of the queue. The SDK keeps 128 links of a span unless it is configured
// otherwise.
func (t *Tracing) BatchHandler(name string, handler queue.BatchHandler) queue.BatchHandler {
	return func(ctx context.Context, messages []*message.Message) (err error) {
		ctx, span := t.startBatch(ctx, name, messages)
		defer span.End() // itself, so that it notes a panic
		err = errNotReturned
		defer func() { fail(span, err) }()
		defer t.enter(span, messages)() //nolint:contextcheck // each message has a context of its own
		err = handler(ctx, messages)
		return err
	}
}

// enter puts the span, and the baggage of each message, into the contexts of the messages, and
// returns what gives them their own contexts back.
func (t *Tracing) enter(span trace.Span, messages []*message.Message) (leave func()) {
	before := make([]context.Context, len(messages))
	for i, msg := range messages {
		before[i] = msg.Context()
		ctx := before[i]
		if len(msg.Metadata) > 0 {
			ctx = t.config.Propagator.Extract(ctx, propagation.MapCarrier(msg.Metadata))
		}
		msg.SetContext(trace.ContextWithSpan(ctx, span))
	}
	messages = slices.Clone(messages) // since the handler may sort its slice
	return func() {
		for i, msg := range messages {
			msg.SetContext(before[i])
		}
	}
}

// startBatch begins the span of a batch.
func (t *Tracing) startBatch(ctx context.Context, name string, messages []*message.Message) (context.Context, trace.Span) {
	links := make([]trace.Link, 0, len(messages))
	for _, msg := range messages {
		if created := t.created(msg); created.IsValid() {
			links = append(links, linkTo(created, msg))
		}
	}
	if created, one := common(links, len(messages)); one && t.config.Parent {
		if ambient := trace.SpanContextFromContext(ctx); ambient.IsValid() {
			links = append(links, trace.Link{SpanContext: ambient})
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, created)
	}
	ctx, span := t.start(ctx, subject{"process", systemPostbox, name, trace.SpanKindConsumer}, links)
	span.SetAttributes(semconv.MessagingBatchMessageCount(len(messages)))
	return ctx, span
}
