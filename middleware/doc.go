// Package middleware holds the handler middlewares of Postbox for a Watermill router.
//
// [Inbox] handles each message once: add it to a handler that you have. [Defer] stores each message and acks it,
// for another handler to work on later.
//
// Order matters, the first added is the outermost: put Retry, PoisonQueue, Recoverer and metrics before the
// inbox, and what touches produced messages, such as CorrelationID, after it, because the inbox writes
// them to the outbox itself.
package middleware
