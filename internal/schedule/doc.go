// Package schedule decides which message runs next, and which messages run concurrently. Different
// keys run side by side, and the messages of one key one after the other. Topics take turns, large
// payloads run as memory allows, and batches run when they are complete. The package has no
// database: the owner of a [Scheduler] tells it which messages were read and which were settled.
package schedule
