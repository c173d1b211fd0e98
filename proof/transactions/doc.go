// Package transactions has no code but its tests: that messages are published in the transactions
// of other libraries, as docs/outbox.md shows it. It is a module of its own, so that nobody else
// requires them.
package transactions
