// Package drain reads the messages of a spool and passes them to a handler: in order for each key,
// on any number of processes, and with an outcome that is stored in the database. The handler of an
// outbox publishes; the handler of a queue is the user's.
//
// A [Drainer] holds lanes of the spool by a lease (lease.go). Only the holder of a lane touches its
// messages. So the drainer reads messages without claiming each, and keeps in memory which of them
// are in flight: a message costs one insert and one delete. In SQL, the fencing token of the lane
// guards each settlement.
//
// The goroutine of [Drainer.Run] reads and renews, one statement or one short transaction at a
// time. Beside it one removal of messages that are simply done and one settlement of other outcomes
// are under way. A pool with a single connection is enough: then they take turns. Workers run the
// handler. They use the database only to load a payload that was too large to be read with its
// page, and to count the start of a suspect.
//
// A read: poll.go says what it asks for, watermark.go and late.go from which id on, stride.go up to
// which, together.go whether for all lanes at once, pagesize.go how much, pace.go when. More
// reasons to read are in tail.go, ticks.go and sweep.go; idle.go says when there is none. How an
// outcome is stored: settler.go.
package drain
