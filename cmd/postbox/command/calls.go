package command

import (
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// utcCall is the call as JSON has it.
func utcCall(call *admin.Call) *admin.Call {
	if call == nil {
		return nil
	}
	shown := *call
	shown.Since = utc(call.Since)
	return &shown
}

// callCell is for how long a call has run, by the clock of this machine.
func callCell(call *admin.Call) string {
	if call == nil {
		return "-"
	}
	return span(max(0, time.Since(call.Since)))
}
