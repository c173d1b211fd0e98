package oteltracing

import (
	"context"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/queue"
)

// BatchHandler returns the handler of a batch with a span each time that it runs, which has a link to the span in which each message was created. The contexts that the handler gets,
// its own and those of the messages, carry the span. When a batch fails, Postbox handles parts of it, and each part has a span of its own.
//
// The name is that of the queue. The SDK keeps 128 links of a span unless it is configured otherwise.
func (t *Tracing) BatchHandler(name string, handler queue.BatchHandler) queue.BatchHandler {
	return func(ctx context.Context, messages []*message.Message) (err error) {
		ctx, span := t.startBatch(ctx, name, messages)
		defer span.End() // itself, so that it notes a panic
		err = errNotReturned
		defer func() { fail(span, err) }()
		for _, msg := range messages {
			msg.SetContext(trace.ContextWithSpan(msg.Context(), span)) //nolint:contextcheck // each has its own
		}
		err = handler(ctx, messages)
		return err
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
