// Package forwarder is the transactional outbox.
//
// A service that changes its database and then publishes a message can crash between the two. A [Publisher]
// writes the message into an outbox table through the transaction that changes the business rows, so both are
// committed or neither is. A [Forwarder] drains the outbox into any Watermill publisher:
//
//	business tx ──► outbox table ──► Forwarder ──► any Watermill publisher
//
// What is promised: a message is in the outbox if and only if the transaction committed; every committed
// message is published at least once or stands in the dead letters; messages of one ordering key are published
// one at a time, in an order that respects causality. What is not: exactly one publication. A crash between
// the broker's answer and its note in the database publishes a message again, under the same UUID, which is
// what an inbox is for.
//
// Transactions are made with [InTx]; on SQLite, where many are made at a time, with a [GroupCommit].
//
// Forwarders in any number of processes share the work and each adds throughput.
package forwarder
