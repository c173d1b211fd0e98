// Package router wires inboxes, queues, batches and forwarders to a Watermill router, one call each.
//
// It adds nothing that the parts do not do by themselves; what it saves is knowing in which order they go. From the
// outside in, a handler's middleware is: the inbox, or what tells a queue how its handler ended; the causation path;
// whatever is added to the handler that each method returns, which works in the handler's transaction; and the guard, see
// [middleware.Guard]. Middleware that the Watermill router has had before goes outside of all of that.
//
// Wherever a Retry, a PoisonQueue or an IgnoreErrors stands, a transaction in which the handler has returned an error is not
// committed: the attempt is recorded with that error, and retried by the inbox or the queue. Such middlewares are not needed, since
// failures are counted, retried and buried here; a Retry around a transactional handler only runs it for nothing, and a PoisonQueue
// publishes a message that is tried again.
//
// Mistakes are errors, not panics: a name that the router has already, two inboxes with one consumer and topic, a queue with two
// handlers, a queue with messages and none, a store that forgets messages before the broker may deliver them again. What starts with the router also
// stops with it.
package router
