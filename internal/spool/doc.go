// Package spool manages the table of messages: how a message is written, what a stored message is,
// and the statements and transactions that the rest of the engine shares. A spool is a named part
// of the table: the outbox, or a queue of an inbox. The hash of the ordering key divides it into
// lanes. The messages of a key are in one lane, in the order of their ids.
//
// Messages have no foreign key to their spool: PostgreSQL would lock its one row for each message
// that is stored. Packages drain, admin and cleanup import this package; it imports none of them.
package spool
