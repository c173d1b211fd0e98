// Package spool is the engine of Postbox: a durable SQL table of messages with one drain loop. The outbox is
// a spool whose handler publishes; the deferred inbox is a spool whose handler is the user's.
//
// How a message goes through:
//
//	Append ──► messages table ──► Drainer.fetch ──► scheduler ──► workers ──► Handler
//	                 ▲                                                │
//	                 └────── settle: delete, retry later, dead ◄──────┘
//
// A spool is cut into lanes by the hash of the ordering key. A [Drainer] holds lanes by leases (leases.go) and
// is the only one to touch them, so it reads messages without claiming them and keeps in memory what is in
// flight: a message costs one insert and one delete. Settling is guarded in SQL by the lane's fencing token.
//
// One goroutine, [Drainer.Run], talks to the database, one statement or one short transaction at a time, so a
// pool with a single connection is enough. Workers run the handler, and go to the database only for a payload that was
// too large to be read with the others.
package spool
