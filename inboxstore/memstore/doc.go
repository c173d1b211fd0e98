// Package memstore is an inbox store in memory, for tests of handlers: no database, no files, no waiting.
//
// It keeps the contract of inboxstore/storetest, so a handler meets the same inbox as in production: claims,
// failures, dead letters, and queues of deferred messages with retries, in the order of their keys. [Store.Pending]
// and [Store.DeadLetters] show what became of messages, and [Store.Advance] makes those due that wait.
//
// It is for tests only. Nothing survives the process, and nothing but memory bounds what it keeps. There is no
// transaction: postbox.TxFromContext finds none in the context of a handler, what a handler has written when it fails
// stays written, and so does what it has claimed or deferred in the store. Only claim, failure and dead letter are
// kept or dropped as in a database.
package memstore
