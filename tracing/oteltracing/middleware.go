package oteltracing

import (
	"context"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// queueSubscriber is the name that a router gives a queue.Subscriber.
const queueSubscriber = "queue.Subscriber"

// Middleware makes a span each time that a handler runs, with a link to the span in which the
// message was created. It is a message.HandlerMiddleware for routers and handlers. The context that
// the message has in the handler carries the span and the baggage of the message. The messages that
// the handler returns get the span too; if its own message is among them, a copy takes its place.
//
// Add it to the router before all handlers. It is then outside of inboxes, of queues and of
// deferrals, so that the span includes the commit, and a duplicate has a span too. There it does
// not hear of a failure that makes the message a dead letter of an inbox, since the inbox then acks
// the message. Add it to the router after all handlers as well if you want to see these failures:
// the second one makes no span, and tells the first one the error of the handler.
//
// If it is added only after all handlers, it is inside of inboxes and queues: the span then has
// each error of the handler, leaves out the commit, and deferrals and duplicates have no span.
func (t *Tracing) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		before := msg.Context()
		if outer, within := before.Value(attemptKey{}).(*attempt); within && outer.msg == msg {
			err = errNotReturned
			defer func() { outer.err.Store(&err) }() // also of a panic, which an inbox turns into an error
			produced, err = h(msg)
			return produced, err
		}
		own := &attempt{msg: msg}
		ctx, span := t.startProcess(before, msg)
		defer span.End() // itself, so that it notes a panic
		err = errNotReturned
		defer func() {
			msg.SetContext(before)
			if inner := own.err.Load(); err == nil && inner != nil {
				fail(span, *inner)
			} else {
				fail(span, err)
			}
		}()
		msg.SetContext(context.WithValue(ctx, attemptKey{}, own))
		produced, err = h(msg)
		return passedOn(ctx, msg, produced), err
	}
}

// passedOn returns the messages that a handler returns, with its span in their contexts. The
// message of the handler itself, which gets its own context back, is replaced by a copy.
func passedOn(ctx context.Context, msg *message.Message, produced []*message.Message) []*message.Message {
	if slices.Contains(produced, msg) {
		produced = slices.Clone(produced)
	}
	for i, out := range produced {
		switch out {
		case nil:
		case msg:
			produced[i] = copyOf(inSpan(ctx, msg.Context()), msg, msg.Metadata)
		default:
			out.SetContext(inSpan(ctx, out.Context()))
		}
	}
	return produced
}

// attempt is a run of a handler that has a span.
type attempt struct {
	msg *message.Message
	err atomic.Pointer[error] // that a Middleware further inside has seen, perhaps in a goroutine of another middleware
}

type attemptKey struct{}

// startProcess begins the span of a handler.
func (t *Tracing) startProcess(ctx context.Context, msg *message.Message) (context.Context, trace.Span) {
	topic := message.SubscribeTopicFromCtx(ctx)
	ambient := trace.SpanFromContext(ctx)
	var links []trace.Link
	if len(msg.Metadata) > 0 {
		ctx = t.config.Propagator.Extract(ctx, propagation.MapCarrier(msg.Metadata))
		created := trace.SpanContextFromContext(ctx)
		switch carried := created.IsValid() && !created.Equal(ambient.SpanContext()); {
		case carried && t.config.Parent && ambient.SpanContext().IsValid():
			links = []trace.Link{linkTo(created, msg), {SpanContext: ambient.SpanContext()}}
		case carried:
			links = []trace.Link{linkTo(created, msg)}
		}
		if !t.config.Parent {
			ctx = trace.ContextWithSpan(ctx, ambient)
		}
	}
	system := t.config.System
	if message.SubscriberNameFromCtx(ctx) == queueSubscriber {
		system = systemPostbox
	}
	ctx, span := t.start(ctx, subject{"process", system, topic, trace.SpanKindConsumer}, links)
	describe(span, msg)
	if name := message.HandlerNameFromCtx(ctx); name != "" && span.IsRecording() {
		span.SetAttributes(handlerKey.String(text(name, maxValue)))
	}
	if source := msg.Metadata.Get(postbox.MetadataSourceTopic); source != "" && source != topic && span.IsRecording() {
		span.SetAttributes(sourceTopicKey.String(text(source, maxValue)))
	}
	return ctx, span
}

// inSpan returns the context of a message that a handler has returned, with the span and the
// baggage of the handler if it has none of its own.
func inSpan(handler, produced context.Context) context.Context {
	if trace.SpanContextFromContext(produced).IsValid() {
		return produced
	}
	if span := trace.SpanFromContext(handler); span.SpanContext().IsValid() {
		produced = trace.ContextWithSpan(produced, span)
	}
	if carried := baggage.FromContext(handler); carried.Len() > 0 && baggage.FromContext(produced).Len() == 0 {
		produced = baggage.ContextWithBaggage(produced, carried)
	}
	return produced
}
