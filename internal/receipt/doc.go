// Package receipt has what the two sides of receipts share: the message that a consumer publishes
// about a message that it has handled, and the row that a producer keeps of it.
package receipt
