// Package inbox is what the store of an inbox and the queues of its messages have in common: a database, and how a handler works in it.
//
// [Core.Transact] runs a handler in a transaction, with the statements of the store or the queue around it. If the transaction cannot be ended as it
// should be, the database is asked whose fault that is, so that an outage counts no attempt and a mistake of the handler does. [Slots] leave a
// connection of the pool to what keeps the process alive.
//
// Package inboxstore makes a [Core] for each store, and package queue works with that of the store that it is given.
package inbox
