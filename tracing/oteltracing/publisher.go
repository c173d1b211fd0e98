package oteltracing

import (
	"context"
	"errors"
	"slices"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/given"
)

// DecoratePublisher returns the publisher with a span for each call of Publish. It is a
// message.PublisherDecorator. Use it for the publisher of the outbox, and for the publisher of the
// broker that a forwarder gets.
//
// The span is a child of the span in the context of the first message, and has links to the spans
// in the contexts of other messages. A message without a trace context in its metadata gets that of
// the new span. A message that has one keeps it byte for byte, even if it cannot be read, and the
// new span has a link to it. The messages of the caller stay as they are: the publisher gets
// copies, whose contexts carry the span. A message gets at most 1 KiB: baggage is left out first,
// and then tracestate. An error of the publisher is recorded and returned.
//
// The publisher of an outbox remains one: inboxes, queues and routers accept the result. To add
// more decorators, use forwarder.Decorate with the result, or with this decorator as the first one.
//
// A handler that publishes a copy of its message copies the context in its metadata too, and then
// the new message belongs to the span in which the old one was created. Call [Tracing.Detach] with
// the copy if it is a message of its own.
func (t *Tracing) DecoratePublisher(inner message.Publisher) (message.Publisher, error) {
	if given.Nil(inner) {
		return nil, errors.New("oteltracing: the publisher is nil")
	}
	if given.PublishesInTx(inner) {
		return forwarder.Decorate(inner, func(outbox message.Publisher) (message.Publisher, error) {
			return &publisher{Publisher: outbox, tracing: t, system: systemPostbox}, nil
		})
	}
	return &publisher{Publisher: inner, tracing: t, system: t.config.System}, nil
}

// publisher makes the spans of a publisher.
type publisher struct {
	message.Publisher

	tracing *Tracing
	system  string
}

// Publish publishes the messages within a span.
func (p *publisher) Publish(topic string, messages ...*message.Message) (err error) {
	if len(messages) == 0 || slices.Contains(messages, nil) {
		return p.Publisher.Publish(topic, messages...)
	}
	span := p.start(topic, messages)
	defer span.End() // itself, so that it notes a panic
	err = errNotReturned
	defer func() { fail(span, err) }()
	err = p.Publisher.Publish(topic, p.within(span, messages)...)
	return err
}

// start begins the span.
func (p *publisher) start(topic string, messages []*message.Message) trace.Span {
	kind := trace.SpanKindProducer // of a span that gives its context to a message
	var links []trace.Link
	for _, msg := range messages {
		if created := p.tracing.created(msg); created.IsValid() {
			links = append(links, linkTo(created, msg))
		}
	}
	if len(links) == len(messages) {
		kind = trace.SpanKindClient
	}
	ctx := messages[0].Context()
	if created, one := common(links, len(messages)); one && p.tracing.config.Parent && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, created)
	}
	links = append(links, elsewhere(trace.SpanContextFromContext(ctx), messages)...)
	_, span := p.tracing.start(ctx, subject{"send", p.system, topic, kind}, links)
	if len(messages) == 1 {
		describe(span, messages[0])
	} else {
		span.SetAttributes(semconv.MessagingBatchMessageCount(len(messages)))
	}
	return span
}

// elsewhere returns links to the spans in the contexts of messages that are not the parent. One
// call may publish messages of several requests, and a span has one parent.
func elsewhere(parent trace.SpanContext, messages []*message.Message) (links []trace.Link) {
	for _, msg := range messages[1:] {
		ambient := trace.SpanContextFromContext(msg.Context())
		if ambient.IsValid() && (ambient.TraceID() != parent.TraceID() || ambient.SpanID() != parent.SpanID()) {
			links = append(links, linkTo(ambient, msg))
		}
	}
	return links
}

// within returns the messages as the inner publisher gets them: with the span in their contexts,
// and with a context in their metadata.
func (p *publisher) within(span trace.Span, messages []*message.Message) []*message.Message {
	passed := messages
	for i, msg := range messages {
		ctx := msg.Context()
		if span.SpanContext().IsValid() {
			ctx = trace.ContextWithSpan(ctx, span)
		}
		metadata, added := p.tracing.inject(ctx, msg)
		if !added && !span.IsRecording() {
			continue
		}
		if &passed[0] == &messages[0] {
			passed = slices.Clone(messages)
		}
		passed[i] = copyOf(ctx, msg, metadata)
	}
	return passed
}

// copyOf returns a copy of a message that has another context and other metadata.
func copyOf(ctx context.Context, msg *message.Message, metadata message.Metadata) *message.Message {
	other := message.NewMessage(msg.UUID, msg.Payload)
	other.Metadata = metadata
	other.SetContext(ctx)
	return other
}
