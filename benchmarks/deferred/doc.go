// Package deferred measures messages that are stored first and handled later: ours, River, and what
// is done by hand.
package deferred
