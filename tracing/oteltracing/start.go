package oteltracing

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// subject is what spans have in common that begin with the same attributes. A sampler sees these
// attributes.
type subject struct {
	operation string // send or process
	system    string
	topic     string
	kind      trace.SpanKind
}

// beginning is the form that the tracer needs of a subject.
type beginning struct {
	name    string
	options []trace.SpanStartOption
}

func (s subject) begin() *beginning {
	topic := text(s.topic, maxValue)
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKey.String(s.system), semconv.MessagingOperationName(s.operation),
		semconv.MessagingOperationTypeKey.String(s.operation), semconv.MessagingDestinationName(topic),
	}
	return &beginning{s.operation + " " + topic, []trace.SpanStartOption{trace.WithSpanKind(s.kind), trace.WithAttributes(attributes...)}}
}

// maxBeginnings bounds the memory for beginnings in a program that makes new topics all the time.
const maxBeginnings = 1000

// beginnings keeps what has been made for a subject, so that a span of a program without a provider
// costs next to nothing.
type beginnings struct {
	known sync.Map // of *beginning, by subject
	count atomic.Int32
}

func (b *beginnings) of(s subject) *beginning {
	if known, ok := b.known.Load(s); ok {
		return known.(*beginning)
	}
	made := s.begin()
	if b.count.Load() < maxBeginnings {
		b.known.Store(s, made)
		b.count.Add(1)
	}
	return made
}

// start begins a span of the subject.
func (t *Tracing) start(ctx context.Context, s subject, links []trace.Link) (context.Context, trace.Span) {
	begin := t.beginnings.of(s)
	if len(links) == 0 {
		return t.tracer.Start(ctx, begin.name, begin.options...)
	}
	return t.tracer.Start(ctx, begin.name, append(begin.options[:len(begin.options):len(begin.options)], trace.WithLinks(links...))...)
}
