// Package circuit decides whether a failure is the fault of the message or of its destination, and
// remembers which topics have an outage. It has no database; its owner reports each call to it.
//
// The technique is a circuit breaker for each topic, with a rule of evidence instead of a failure
// rate: see blame.go.
package circuit
