package checker

import (
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// SlotLoss is a loss of the slot by which messages are read that are in the log alone: it was dropped, or the database that took over does not have it. What
// had not been read by then is gone, and so is what was written until an operator had accepted the loss. Nothing else may be.
type SlotLoss struct {
	// Settled are messages that were published or had rows before: they are not lost with the slot.
	Settled map[string]bool
	// Accepted is when the operator had accepted the loss.
	Accepted time.Time
}

// lostWithSlot says whether a loss of the slot excuses that a message was never published. A message that has a row is in the outbox.
func (x *index) lostWithSlot(message string) bool {
	s := x.said[message]
	if s == nil || !ledger.InLog(message) || s.sent > 0 || x.outbox[message] > 0 {
		return false
	}
	return slices.ContainsFunc(x.SlotLosses, func(l SlotLoss) bool {
		return !l.Settled[message] && s.intendedAt.Before(l.Accepted)
	})
}

// ofTheLog counts the messages that were in the log alone: all that are there, those of them that were published without ever getting a row, and those that are lost
// with a slot.
func (x *index) ofTheLog() (all, direct, lost int) {
	for message := range x.intents {
		if !ledger.InLog(message) {
			continue
		}
		all++
		if x.lostWithSlot(message) {
			lost++
		}
		if x.of(message).sent > 0 && !x.Database.Rows[message] {
			direct++
		}
	}
	return all, direct, lost
}
