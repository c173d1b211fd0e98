package command

import (
	"context"
	"fmt"
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

// longCall says which call of a target has not returned for long.
func longCall(info admin.QueueInfo) string {
	call, who := info.LongCall, "handler"
	if info.Target.Kind != kindQueue {
		who = "publisher"
	}
	return fmt.Sprintf("the %s of %s in process %s has not returned since %s, with message %d", who, info.Target, cell(call.Process), moment(call.Since), call.ID)
}

// checkCalls lists calls that may hang.
func (s *session) checkCalls(ctx context.Context) ([]finding, error) {
	queues, err := s.queues(ctx)
	var findings []finding
	for _, info := range queues {
		if info.LongCall == nil || !info.LongCall.Hangs {
			continue
		}
		findings = append(findings, finding{
			Status: findingNotice,
			Text:   longCall(info),
			Fix:    "if it does not take that long by design, take a goroutine dump of the process, which ends it, give the call a time-out, and start the process again",
		})
	}
	return findings, err
}
