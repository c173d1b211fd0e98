package oteltracing

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope of all spans.
const scope = "github.com/postbox-go/watermill-postbox/tracing/oteltracing"

// systemPostbox is the messaging.system of outboxes and queues.
const systemPostbox = "postbox"

// Config says where spans go and how they are related. The zero value uses the providers that the
// program has set globally.
type Config struct {
	// System is the attribute messaging.system of messages that go to the broker or come from it,
	// such as "kafka" or "rabbitmq". Outboxes and queues are "postbox", whatever System is.
	// Defaults to "postbox".
	System string
	// Parent makes a span the child of the span in which its message was created, so that all spans
	// of a message are in one trace. A span of several messages gets a parent only if all of them
	// were created in the same span. Each span has its links all the same.
	//
	// The handler's span then belongs to the trace of its message even if its context already has a
	// span, which becomes a link. A span of a publisher keeps the span of its context as its
	// parent.
	//
	// By default, a handler begins a trace of its own, which has a link to the message's trace. The
	// conventions recommend that, since a trace with a parent grows for as long as the message is
	// retried, and a sampler decides about all of it at its beginning.
	Parent bool

	// TracerProvider makes the spans. Defaults to the global one, also if the program sets that
	// later.
	TracerProvider trace.TracerProvider
	// Propagator writes contexts into metadata and reads them. Defaults to the global one, also if
	// the program sets that later. The global one does nothing until the program sets it with
	// otel.SetTextMapPropagator.
	Propagator propagation.TextMapPropagator
}

func (c *Config) setDefaults() {
	if c.System == "" {
		c.System = systemPostbox
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.Propagator == nil {
		c.Propagator = otel.GetTextMapPropagator()
	}
}

// Tracing makes the spans of publishers and handlers. One Tracing serves a whole process. It is
// safe for concurrent use, keeps no state of messages and makes no round trip.
type Tracing struct {
	config     Config
	tracer     trace.Tracer
	beginnings beginnings
}

// New returns a Tracing. The schema of its spans is the newest that the API of OpenTelemetry has.
// The names in it that are used here are the same in version 1.44.
func New(config Config) *Tracing {
	config.setDefaults()
	return &Tracing{config: config, tracer: config.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))}
}
