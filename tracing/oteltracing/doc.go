// Package oteltracing makes OpenTelemetry spans of messages: one when a message is written to the
// outbox, one when the forwarder sends it to the broker, and one each time that a handler runs. A
// trace then leads from an HTTP request, through the outbox, the broker and a queue, to the last
// handler.
//
// The context of a trace travels in the metadata of a message, as the propagator writes it. For the
// propagator of W3C these are the keys traceparent, tracestate and baggage. Outboxes, forwarders,
// inboxes, queues and dead letters keep metadata, so none of them needs to know of traces.
//
//	tracing := oteltracing.New(oteltracing.Config{System: "kafka"})
//
//	outbox, err := tracing.DecoratePublisher(outboxPublisher) // send orders
//	broker, err := tracing.DecoratePublisher(kafkaPublisher)  // send orders, for the forwarder
//	router.AddMiddleware(tracing.Middleware)                  // process orders
//
// The package needs the API of OpenTelemetry only. The program chooses the SDK and the exporter.
//
// The spans follow version 1.44 of the semantic conventions for messaging:
//
//	Span             Kind      When
//	send <topic>     producer  a message gets its context here: in an outbox, usually
//	send <topic>     client    the messages have a context already: in a forwarder, usually
//	process <topic>  consumer  a handler runs, once for each attempt
//
// Each span has a link to the span in which its message was created. With [Config.Parent] that span
// is the parent too, so that all spans of a message are in one trace.
//
// A context that cannot be read fails no message: it gives no link, and stays in the metadata as it
// is. What a message gets counts towards forwarder.PublisherConfig.MaxPayload as all metadata does.
// It is at most 1 KiB, and about 120 bytes without baggage and tracestate, so only a message that
// is nearly too large can fail because of its trace. To stay within 1 KiB, baggage is left out
// first, and then tracestate.
package oteltracing
