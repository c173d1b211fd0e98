// Package admin has the functions that an operator needs. They show the messages in the outboxes,
// queues and dead letters of a database, and how far processing has got. They pause outboxes and
// queues, change their settings, and act on single messages.
//
// # Outboxes and queues
//
// [Admin.Queues] shows the state of each outbox and queue. [Admin.Pause] stops one in all
// processes, or the messages with one ordering key or topic. [Admin.ChangeSettings] changes how
// fast, how often and for how long, without a restart. [Admin.Messages] lists pending messages,
// and handled ones if they are kept. [Admin.Reschedule] and [Admin.Bury] act on a message that
// waits: for its time, its next attempt, or an operator. [Admin.Account] shows whether every
// written message is accounted for.
//
// Each action of an operator is stored in the database and committed before the method returns.
// Every process applies it within about a second, also after a crash or a restart. The calling
// process and those that LISTEN are woken, and the others read the settings once a second. Each
// action but [Admin.Replay] can be repeated, and several operators can act at once. When the answer
// to a commit is lost, the error is [postbox.ErrCommitUnknown]: repeat the call, but for a replay.
//
// # Dead letters
//
// A message becomes a dead letter when it has used up its attempts, or when its error says that no
// retry can cure it. It is not tried again until an operator decides. There are two kinds:
//
//   - A message of an outbox (or of another queue in the database) that could not be published.
//     Requeue puts it back at the end of its queue.
//   - A message from a broker that an inbox could not handle. [DeadLetter.Consumer] names the
//     consumer. Requeue removes the consumer's claim of the message and publishes the message again
//     through the outbox that [Config.Outbox] names, on its own topic and with its own id. The
//     consumer handles it, and the inboxes of all other consumers recognise it as a duplicate.
//     Consumers without an inbox get it a second time. The inbox itself needs no outbox for that.
//
// [Admin.Requeue], [Admin.Resolve] and [Admin.Delete] act on one dead letter, or on all that match
// a [Filter], page by page. [Admin.Groups] sorts letters by the way in which they failed.
// [Again] can replace the payload or the metadata of a message. Each action leaves an entry for
// [Admin.Audit], in the transaction of its effect.
//
// Several operators may act on the same dead letter at the same moment: it is requeued, resolved or
// deleted once. The other operators get [ErrNotFound] or [ErrRefused]. Requeueing is one
// transaction, so a crash leaves either the letter or the message, and never both.
//
// Dead letters are kept for the retention in the configuration of forwarders and inboxes, by
// default 30 days, or for the retention that [Admin.ChangeSettings] gives an outbox or a queue.
// That includes dead letters that are not resolved, so watch [QueueInfo.Dead].
//
// The package needs one connection at a time, and starts no goroutine but that of [Admin.Measure].
package admin
