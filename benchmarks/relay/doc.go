// Package relay measures how messages get from the outbox to a publisher: ours, what a user would
// pick instead, and the same by hand.
package relay
