// Package spool manages the table of messages: how a message is written, what a stored message is, and the statements
// and transactions that the rest of the engine shares. A spool is a named part of the table. The outbox is a spool, and
// each queue of an inbox is one.
//
// Package drain reads a spool and passes its messages to a handler. Package operate contains the actions of operators,
// and package cleanup deletes old rows. They import this package; it imports none of them.
//
// The hash of the ordering key divides a spool into lanes. The messages of a key are in one lane, in the order of their
// ids.
package spool
