// Package pubsub runs Watermill's own suite for Pub/Subs over an outbox, a forwarder and each
// destination: in memory, RabbitMQ and Kafka. It also tests what a forwarder does with refusals of
// a real Kafka, and that messages keep what they are on their way: payloads, ids, topics and
// coordinates.
package pubsub
