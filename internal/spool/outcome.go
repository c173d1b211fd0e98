package spool

import "time"

// Verdict says how a message's turn ended.
type Verdict int

const (
	// Done removes the message.
	Done Verdict = iota
	// Retry counts an attempt and lets the message wait, with the later ones of its key behind it; after the
	// last attempt it is dead.
	Retry
	// Dead moves the message to the dead letters, or does what the queue has instead: see drain.HeadPolicy.
	Dead
	// Wait lets the message wait for [Outcome.After], or for the first pause of the profile, with the later ones of its
	// key behind it, and counts no attempt: what failed was not the message, and others shall have their turn first.
	Wait
	// Again lets the message run again after a pause, with the later ones of its key behind it, and counts no attempt: it was handled, and its
	// end was refused, by a conflict with other transactions or since its row could not be removed. The pause doubles with each time in a
	// row: see package drain, setback.go.
	Again
	// Postpone leaves everything as it is: nothing was attempted, or what failed was not the message.
	Postpone
	// Settled says that the handler has removed the message itself, in its own transaction: see [Message.Settle].
	Settled
)

// Outcome is how the turn of one message ended.
type Outcome struct {
	Verdict Verdict
	// Err is why the message did not succeed.
	Err error
	// After, when positive, is used instead of the backoff's delay.
	After time.Duration
	// Final says that no attempt is left, whatever the profile says.
	Final bool
	// Locked says that the message could not be handled, since its row is locked.
	Locked bool
	// Uncounted says that the message could not be handled, since its start could not be recorded for another reason. Err may be nil.
	Uncounted bool
}

// Through says whether later messages of the key may go on.
func (o Outcome) Through() bool { return o.Verdict == Done || o.Verdict == Settled }
