// Package pipeline proves Postbox from end to end, and holds nothing but tests: a service that
// produces, with its outbox; forwarders; a real broker; and a service that consumes, whose inbox
// has an outbox of its own on to a second consumer. Whatever is allowed to fail fails in between:
// deliveries come twice, handlers fail after they have written, forwarders and routers are closed
// under load, processes are killed, the answer to a COMMIT is lost.
//
// The oracle is the same for all: each consumer has applied exactly what was committed, once, each
// key in order.
package pipeline
