// Package tracing follows one trace through all of Postbox, and holds nothing but tests: from the
// HTTP request that writes an order, through the outbox, the forwarder, the broker, an inbox and a
// queue, to the handler that takes the money. The module tracing/oteltracing has the tests of each
// part.
//
// It is here because it needs Kafka's client, which the module of the spans does not require.
package tracing
