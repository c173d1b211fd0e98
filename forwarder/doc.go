// Package forwarder is the transactional outbox.
//
// A service that changes its database and then publishes a message can crash between the two. A
// [Publisher] writes the message into an outbox table through the transaction that changes the
// business rows, so both are committed or neither is. A [Forwarder] drains the outbox into any
// Watermill publisher:
//
//	business tx ──► outbox table ──► Forwarder ──► any Watermill publisher
//
// What is promised: a message is in the outbox if and only if the transaction committed. Every
// committed message is published at least once or becomes a dead letter. Messages of one ordering
// key are published in an order that respects causality, never two calls at a time; while a topic
// is away, limited or paused, later messages of its keys in other topics go on.
//
// What is not promised: exactly one publication. If a process crashes after the broker's answer and
// before that answer is recorded in the database, the message is published again, under the same
// UUID. An inbox recognises such duplicates.
//
// Make transactions with [postbox.InTx].
//
// Forwarders in any number of processes share the work, and each adds throughput.
package forwarder
