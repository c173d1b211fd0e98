package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/postbox-go/watermill-postbox/admin"
)

// obstacles says what keeps the messages of targets that are not empty, so that an operator does not wait in vain. It says nothing if that cannot be read: the
// role may have the rights of a probe alone.
func (s *session) obstacles(ctx context.Context, found []drainRecord) string {
	queues, err := s.queues(ctx)
	if err != nil {
		return ""
	}
	left := map[targetRecord]bool{}
	for _, record := range found {
		left[record.targetRecord] = !record.Empty
	}
	var text strings.Builder
	for _, info := range queues {
		if kept := keptBy(info); left[recordOf(info.Target)] && len(kept) > 0 {
			fmt.Fprintf(&text, "; %s: %s", recordOf(info.Target), strings.Join(kept, ", "))
		}
	}
	return text.String()
}

// keptBy lists what keeps messages of a target.
func keptBy(info admin.QueueInfo) []string {
	if info.Pending == 0 { // the last one has been handled since
		return nil
	}
	kept := statesOf(info)
	if info.Processes == 0 {
		kept = append(kept, "no process")
	}
	if text := longCall(info, 0); text != "" {
		kept = append(kept, text)
	}
	if info.Parked > 0 {
		kept = append(kept, count(info.Parked, "parked message"))
	}
	if info.Due == 0 && info.Parked < info.Pending {
		kept = append(kept, "none is due yet")
	}
	return kept
}
