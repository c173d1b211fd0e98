// Package middleware holds the handler middlewares of Postbox for a Watermill router.
//
// [Inbox] handles each message once: add it to a handler that you have. [Defer] stores each message and acks it,
// for another handler to work on later, whose middleware is [Process]. [Causation] notes on each emitted message what led
// to it.
//
// Order matters, the first added is the outermost: put Recoverer and metrics before the inbox, and what touches
// produced messages, such as [Causation] or CorrelationID, after it, because the inbox writes them to the outbox itself.
// The package router does it right by itself.
package middleware
