// Package inbox is the common part of the store of an inbox and the queues of its messages: a
// database, and the transaction in which a handler works.
//
// [Core.Transact] runs a handler in a transaction, between the statements of the store or the
// queue. If the transaction cannot be ended as intended, the package asks the database for the
// cause, so that an outage counts no attempt and a mistake of the handler does. [Slots] reserve a
// connection of the pool for the work that keeps the process alive.
//
// Package inboxstore creates a [Core] for each store, and package queue uses that of the store that
// it gets.
package inbox
