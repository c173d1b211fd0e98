// Package spool is the table of messages: how a message is written to it, what a stored message is, and the statements and transactions that the
// rest of the engine shares. A spool is a named part of the table. The outbox is one, and each queue of an inbox is one.
//
// Package drain reads a spool and lets a handler have its messages; package operate is what operators do to it, and package cleanup deletes what is
// old. They import this package; it imports none of them.
//
// A spool is cut into lanes by the hash of the ordering key. The messages of a key are in one lane, in the order of their ids.
package spool
