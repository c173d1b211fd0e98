// Package schedule decides which message runs next, and which messages run concurrently. Different
// keys run side by side, and the messages of one key one after the other (finish.go says when a key
// goes on). Topics take turns, large payloads run as memory allows (payloads.go), and batches run
// when they are complete (gather.go). The package has no database: the owner of a [Scheduler] tells
// it which messages were read and which were settled.
package schedule
