// Package admin is what an operator needs: the dead letters of a database, and how far its outbox has got.
//
// A message becomes a dead letter when it has failed as often as it may, or when its error says that no retry can
// cure it. It is not tried again until an operator says so. There are two kinds:
//
//   - A message of an outbox (or of another queue in the database) that could not be published. Requeue puts it back
//     at the end of its queue.
//   - A message from a broker that an inbox could not handle. [DeadLetter.Consumer] names the consumer. Requeue
//     forgets that the consumer has had it and publishes it again through the outbox that the inbox is configured
//     with, on its own topic and with its own id: the consumer handles it, and the inboxes of all others recognise
//     it as a duplicate. Consumers without an inbox get it a second time.
//
// What operators do in a hurry is safe: a letter is requeued, resolved or deleted once, whoever else tries the same
// at the same moment gets [ErrNotFound] or [ErrResolved]. Requeueing is one transaction, so a crash leaves either
// the letter or the message, and never both.
//
// Dead letters are kept for the retention that forwarders and inboxes are configured with, by default 30 days, also
// those that nobody resolved: watch [TopicStats.Dead].
//
// The package starts no goroutine and needs one connection at a time.
package admin
