// Package tail is the seam between a receiver, which reads the log of a database, and the drainers
// of outboxes. A [Source] is a receiver. It tells the [Feed] of each drainer which transactions
// have changed something for it, so that the drainer reads at once. A receiver never waits for a
// drainer, and what it does not tell is found by polling.
package tail
