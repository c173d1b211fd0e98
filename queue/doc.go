// Package queue handles messages that a store has taken in before: inboxstore.Store.Defer, or
// middleware.Defer around it, has stored and acked them.
//
// From then on the broker no longer limits how long a handler takes or how often it fails. A queue
// keeps order within a key and retries with pauses. It waits during an outage of a service that the
// handler needs, and moves messages that keep failing to the dead letters. Any number of processes
// share a queue. A message that a crashed process was handling is handled again.
//
//   - [Subscriber] hands messages out one by one. It is a subscriber like any other of Watermill,
//     whose topic is the name of the queue. Add middleware.Process to its handler, so that the
//     queue hears the handler's error, or call [Fail] before a Nack.
//   - [Batch] hands out many at a time: by number, by age, or on a schedule. It finds out which
//     messages of a batch fail.
//
// With Transactional in [Config], the writes of a handler and the end of its message commit
// together, so the message has its effect once.
//
// Package router adds both the handler of a queue and the handler that fills the queue in one call.
package queue
