// Package router wires inboxes, queues, batches and forwarders to a Watermill router, one call each.
//
// It adds nothing that the parts do not do by themselves; what it saves is knowing in which order they go. From the
// outside in, a handler's middleware is: the inbox, or what tells a queue how its handler ended; the causation path;
// whatever is added to the handler that each method returns, which works in the handler's transaction; and the guard, see
// [middleware.Guard]. Middleware that the Watermill router has had before goes outside of all of that.
//
// Leave out Watermill's Retry, PoisonQueue and IgnoreErrors: failures are counted, retried and buried here. Wherever such a middleware stands, a transaction in which the
// handler has returned an error is not committed, and the attempt is recorded with that error. What follows depends on where it stands:
//
//   - Added to the handler, or to the Watermill router later: the inbox or the transactional queue tries the message again. A Retry runs the handler for nothing, and a PoisonQueue
//     publishes a copy of a message that is tried again. In a queue that is not transactional an error that was taken is not seen: the message is done.
//   - Added to the Watermill router before, so outside of an inbox or of a queue: PoisonQueue and IgnoreErrors take the error, and the router acks the message. From an inbox,
//     or from a queue that is not transactional, it is then gone without an effect and without a dead letter. An inbox logs an error, once a minute at most. A transactional queue tries
//     the message again all the same. A Retry makes further deliveries.
//
// Mistakes are errors, not panics: a name that the router has already, two inboxes with one consumer and topic unless you allow them, a queue with two
// handlers, a queue with messages and none, a store that forgets messages before the broker may deliver them again. What starts with the router also
// stops with it.
package router
