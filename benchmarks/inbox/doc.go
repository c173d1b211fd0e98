// Package inbox measures handlers that have their effect once, when messages come from a broker:
// ours, and the same by hand. And what it costs to write a message in the first place.
package inbox
