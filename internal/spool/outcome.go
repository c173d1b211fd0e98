package spool

import "time"

// Verdict is the kind of an outcome.
type Verdict int

const (
	// Done removes the message.
	Done Verdict = iota
	// Retry counts an attempt. The message waits, and later messages of its key wait behind it.
	// After the last attempt it is dead.
	Retry
	// Dead moves the message to the dead letters, or applies the queue's policy: see
	// drain.HeadPolicy.
	Dead
	// Wait makes the message wait for [Outcome.After], or for the first pause of the profile, and
	// later messages of its key wait behind it. No attempt counts, because the message did not
	// fail. Other messages run first.
	Wait
	// Again makes the message run again after a pause, and later messages of its key wait behind
	// it. No attempt counts: the message was handled, but its settlement was refused, because of a
	// conflict with other transactions or because its row could not be removed. The pause doubles
	// with each time in a row: see package drain, setback.go.
	Again
	// Postpone leaves everything unchanged: there was no attempt, or the failure was not the
	// message's.
	Postpone
	// Settled means that the handler has removed the message itself, in its own transaction: see
	// [Settle].
	Settled
)

// Outcome is the result of handling one message.
type Outcome struct {
	Verdict Verdict
	// Err is the reason why the message did not succeed.
	Err error
	// After, if positive, replaces the delay of the retry profile.
	After time.Duration
	// Final is set if no attempt is left, whatever the profile says.
	Final bool
	// Locked is set if the message could not be handled because its row is locked.
	Locked bool
	// Uncounted is set if the message could not be handled because its start could not be recorded
	// for another reason. Err may be nil.
	Uncounted bool
}

// Through reports whether later messages of the key may continue.
func (o Outcome) Through() bool { return o.Verdict == Done || o.Verdict == Settled }
