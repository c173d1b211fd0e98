// Package drain reads the messages of a spool and lets a handler have them: in order for each key, on as many processes as there are, with an end
// that the database knows. The handler of an outbox publishes; the handler of a queue is the user's.
//
// How a message goes through:
//
//	messages table ──► Drainer.fetch ──► schedule.Scheduler ──► workers ──► Handler
//	       ▲                                                       │
//	       └────────── settle: delete, retry later, dead ◄─────────┘
//
// A [Drainer] holds lanes of the spool by leases (lease.go). It is the only one to touch the messages of these lanes, so it reads them without
// claiming each, and keeps in memory which are in flight: a message costs one insert and one delete. Settling is guarded in SQL by the fencing token
// of the lane.
//
// The goroutine of [Drainer.Run] reads, settles and renews, one statement or one short transaction at a time, so a pool with a single connection
// is enough. Removals of messages that are simply done run beside it where the pool has a second connection (removal.go). Workers run the handler; they
// go to the database for a payload that was too large to be read with the others, and to count the start of a suspect (starts.go).
package drain
