// Package memstore is an inbox store in memory, for tests of handlers that do not write in the
// transaction of [postbox.TxFromContext]: no database, no files, no waiting. For handlers that do,
// use package postboxtest on SQLite, which needs no server either.
//
// It keeps the contract of inboxstore/storetest, so a handler meets the same inbox as in
// production: claims, failures, dead letters, and queues of deferred messages with retries, in the
// order of their keys. [Store.Pending] and [Store.DeadLetters] show the state of messages, and
// [Store.Advance] makes waiting messages due.
//
// It is for tests only. Nothing survives the process, and only the available memory limits the
// number of messages. There is no transaction: postbox.TxFromContext finds none in the context of a
// handler. If a handler fails, its writes remain, and so do its claims and deferred messages in the
// store. Only its own claim, failure and dead letter are kept or dropped as in a database.
package memstore
