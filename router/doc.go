// Package router wires inboxes, queues, batches and forwarders to a Watermill router, one call each.
//
// It adds nothing that the parts do not do by themselves; what it saves is knowing in which order they go. From the
// outside in, a handler's middleware is: the inbox, or what tells a queue how its handler ended; the causation path;
// whatever is added to the handler that each method returns, which works in the handler's transaction. Middleware that
// the Watermill router has had before goes outside of all of that: so a Recoverer or a Timeout does no harm, and a Retry
// or a PoisonQueue sees nothing, since failures are Postbox's to count.
//
// Mistakes are errors, not panics: a name that the router has already, a queue with two handlers, a queue with messages
// and none, a store that forgets messages before the broker may deliver them again. What starts with the router also
// stops with it.
package router
