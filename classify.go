package postbox

import (
	"github.com/postbox-go/watermill-postbox/internal/commit"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// ErrorClass says whether an error of a broker or a database is the fault of the message. Functions
// that return one can be joined with cmp.Or.
type ErrorClass int

const (
	// Unclassified errors may be the message's fault or the destination's. In an outbox they count
	// as an attempt only after another message to the same destination got through, or after a time
	// limit: see forwarder.Config.OutageLimit. In a queue they count.
	Unclassified ErrorClass = iota
	// Outage errors are about the connection or the service, not about the message. Messages to the
	// destination wait for a while, and no attempt is counted.
	Outage
	// MessageFault errors are about the message: too large, not encodable. They count at once.
	MessageFault
)

// ClassifyNetwork classifies the connection errors of Go's standard library as an outage: refused,
// reset, closed, timed out, unknown host. [Permanent] errors are faults of the message.
func ClassifyNetwork(err error) ErrorClass {
	if verdict.IsPermanent(err) {
		return MessageFault
	}
	if commit.IsAway(err) {
		return Outage
	}
	return Unclassified
}
