// Package tail is the seam between a receiver, which reads the log of a database, and the drainers of outboxes. A
// [Source] is a receiver. It puts the messages of each outbox into the [Feed] of its drainer. A feed is bounded, and a
// receiver never waits for a drainer: messages that a feed has dropped are found by polling.
package tail
