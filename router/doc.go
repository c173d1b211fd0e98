// Package router sets up inboxes, queues, batches and forwarders on a Watermill router, with one
// call for each.
//
// It uses only the parts that you could add yourself, and adds them in the right order. The
// middleware of a handler is, from the outside in: the inbox, or the middleware that tells a queue
// how its handler ended; the causation path; the middlewares that you add to the handler that each
// method returns, which work in the handler's transaction; and the guard, see [middleware.Guard].
// Middleware that was added to the Watermill router before is outside of all of these.
//
// Leave out Watermill's Retry, PoisonQueue and IgnoreErrors: failures are counted and retried here,
// and dead letters are made here. Wherever such a middleware stands, a transaction in which the
// handler has returned an error is not committed, and the attempt is recorded as failed. The rest
// depends on its place:
//
//   - Added to the handler, or to the Watermill router later: the inbox or the transactional queue
//     tries the message again. A Retry runs the handler for nothing, and a PoisonQueue publishes a
//     copy of a message that is tried again. In a queue that is not transactional, an error that
//     such a middleware takes is not seen, and the message is done.
//   - Added to the Watermill router before, and so outside of an inbox or of a queue: PoisonQueue
//     and IgnoreErrors take the error, and the router acks the message. A message of an inbox, or
//     of a queue that is not transactional, is then gone without an effect and without a dead
//     letter, and the log says only nack. A transactional queue tries the message again all the
//     same. A Retry makes further deliveries.
//
// Mistakes are errors, not panics: a name that the router already has; a handler or a forwarder
// that is added when the router is running or closed; two inboxes with one consumer and topic,
// unless you allow them; a queue with two handlers; a queue with messages and without a handler; a
// store that forgets messages before the broker may deliver them again. Parts that start with the
// router also stop with it.
package router
