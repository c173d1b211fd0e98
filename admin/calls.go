package admin

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// hangsAfter is how long a call of a publisher or a handler may run until it may hang.
const hangsAfter = 5 * time.Minute

// Call is a call of a forwarder's publisher, or of a queue's handler, that has not returned yet. It
// is what its process said of it in its last heartbeat, a few seconds ago at most. A process tells
// of the one that has not returned for longest, once that has run for two heartbeats: 10 s by
// default.
type Call struct {
	// Since is when the call began, by the clock of its process.
	Since time.Time `json:"since"`
	// Process is the name of the member that makes it: see [Member.Name].
	Process string `json:"process"`
	// Topic, ID and MessageID are those of its message, or of the first one if it has several.
	Topic     string `json:"topic"`
	ID        int64  `json:"id"`
	MessageID string `json:"message_id"`
	// Hangs says that it has run for more than five minutes, by the clock of the reader, so that it
	// may never return.
	Hangs bool `json:"-"`
}

// callOf returns nil without a call.
func callOf(call *spool.Call, process string) *Call {
	if call == nil {
		return nil
	}
	return &Call{Since: call.Since, Process: process, Topic: call.Topic, ID: call.ID, MessageID: call.MessageID, Hangs: time.Since(call.Since) >= hangsAfter}
}
