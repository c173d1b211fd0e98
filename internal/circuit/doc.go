// Package circuit decides whether a failure is the fault of the message or of the place it goes to, and remembers which topics have an outage. It
// has no database; its owner tells it of each call.
//
// The technique is a circuit breaker for each topic, with a rule of evidence in place of a rate: see blame.go.
package circuit
