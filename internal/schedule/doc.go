// Package schedule decides which message runs next, and beside which: different keys side by side, the messages of one key one after the other,
// topics in turns, large payloads as memory allows, and batches when they are complete. It knows no database: a [Scheduler] is told what was read and
// what was settled, so a second source of messages beside polling can feed it in the same way.
package schedule
