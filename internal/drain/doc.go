// Package drain reads the messages of a spool and passes them to a handler: in order for each key,
// on any number of processes, and with an outcome that is stored in the database. The handler of an
// outbox publishes; the handler of a queue is the user's.
//
// A [Drainer] holds lanes of the spool by a lease (lease.go). Only the holder of a lane touches its
// messages. So the drainer reads messages without claiming each, and keeps in memory which of them
// are in flight: a message costs one insert and one delete. The fencing token of the lane is a
// condition of each settlement.
//
// The goroutine of [Drainer.Run] reads and renews, one statement or one short transaction at a
// time. Beside it one removal of messages that are simply done and one part of those with other
// outcomes are under way. A pool with a single connection is enough: then they take turns. Workers
// run the handler. They use the database only to load a payload that was too large to be read with
// its page, and to count the start of a suspect.
//
// The drainer is a loop that calls its components in a fixed order. Each component has its own
// fields, and uses only those above it in this list. The comment at its type names its other files.
//
//	core        core.go        what all of them share
//	settler     settler.go     how outcomes are stored
//	crashGuard  crashguard.go  messages that may have crashed a process
//	workers     worker.go      the goroutines that call the handler
//	lease       lease.go       which lanes this process holds, and until when
//	limiter     limits.go      what all processes share of a limit
//	tailing     tail.go        what the log of the database tells
//	reader      poll.go        what to read next
//	idler       idle.go        when there is nothing to do
package drain
