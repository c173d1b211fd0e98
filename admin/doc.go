// Package admin is what an operator needs: what is in the outboxes and queues of a database and in their dead letters, how
// far they have got, and the means to pause them, to set them and to deal with single messages.
//
// # Outboxes and queues
//
// [Admin.Queues] shows how each of them does. [Admin.Pause] stops one in all processes, [Admin.PauseKey] the messages with
// one ordering key, and [Admin.SetSettings] changes how fast, how often and how long, without a restart. [Admin.Messages]
// lists what is pending, [Admin.Done] what was handled, where that is kept. [Admin.RunNow], [Admin.Reschedule] and
// [Admin.Bury] deal with a message that waits: for its time, its next attempt, or an operator. [Admin.Account] tells whether
// everything that was written is somewhere.
//
// What operators say is stored in the database, committed before a method returns, and obeyed by every process within
// a second or so, also after a crash or a restart. Processes that share the machine or LISTEN are woken, the others look
// once a second. All of it can be said twice, and by several operators at once. When the answer to a commit is lost the
// error is [postbox.ErrCommitUnknown]: say it again.
//
// # Dead letters
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
// It is safe to act in a hurry: a letter is requeued, resolved or deleted once, even if several operators try the same
// at the same moment. The others get [ErrNotFound] or [ErrResolved]. Requeueing is one transaction, so a crash leaves either
// the letter or the message, and never both.
//
// Dead letters are kept for the retention that forwarders and inboxes are configured with, by default 30 days, or the one
// that [Admin.SetSettings] gives an outbox or a queue, also those that are not resolved: watch [TopicStats.Dead].
//
// The package starts no goroutine and needs one connection at a time.
package admin
