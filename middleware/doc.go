// Package middleware holds the handler middlewares of Postbox for a Watermill router.
//
// [Inbox] handles each message once: add it to a handler that you already have. [Defer] stores each
// message and acks it. Another handler works on the message later; its middleware is [Process].
// [Causation] records on each emitted message which messages led to it.
//
// The order matters: the middleware that is added first is the outermost. Put Recoverer and metrics
// before the inbox. Put middleware that works on produced messages, such as [Causation] or
// CorrelationID, after it, because the inbox writes these messages to the outbox itself. The
// package router uses the right order by itself.
package middleware
