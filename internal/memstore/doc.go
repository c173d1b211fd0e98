// Package memstore is an inbox store in memory. It shows that a store which is not of this module
// can keep the contract of inboxstore/storetest, and it is the store of tests that need no
// database. Users test their handlers with package postboxtest on SQLite.
//
// [Store.Pending] and [Store.DeadLetters] show the state of messages, and [Store.Advance] makes
// waiting messages due.
//
// Nothing survives the process, and only the available memory limits the number of messages. There
// is no transaction: postbox.TxFromContext finds none in the context of a handler. If a handler
// fails, its writes remain, and so do its claims and deferred messages in the store. Only its own
// claim, failure and dead letter are kept or dropped as in a database.
package memstore
