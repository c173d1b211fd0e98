package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// obstacles says what keeps the messages of these targets, and names calls that have not returned
// for so long. Operators must not wait for what does not end by itself. It says nothing if that
// cannot be read: the role may have the rights of a probe alone.
func (s *session) obstacles(ctx context.Context, of map[admin.Target]bool, callsOf time.Duration) string {
	queues, err := s.queues(ctx)
	if err != nil {
		return ""
	}
	var text strings.Builder
	for _, info := range queues {
		if !of[info.Target] || info.Pending == 0 { // the last message has been handled since
			continue
		}
		kept := keptBy(info)
		if len(kept) == 0 {
			kept = s.stuckKeys(ctx, info.Target)
		}
		if len(kept) > 0 {
			fmt.Fprintf(&text, "; %s: %s", info.Target, strings.Join(kept, ", "))
		}
		if call := info.LongCall; call != nil && time.Since(call.Since) >= callsOf {
			text.WriteString("; " + longCall(info))
		}
	}
	return text.String()
}

// stuckKeys says where an operator sees the stuck keys of a target, if there are any.
func (s *session) stuckKeys(ctx context.Context, of admin.Target) []string {
	a, err := s.admin("")
	if err != nil {
		return nil
	}
	if keys, err := a.StuckKeys(ctx, admin.Filter{Target: of, Limit: 1}); err != nil || len(keys) == 0 {
		return nil
	}
	target := of
	return []string{fmt.Sprintf("keys are stuck: \"postbox keys stuck --%s %s\" lists them", target.Kind, shellWord(target.Name))}
}

// keptBy lists what keeps messages of a target.
func keptBy(info admin.QueueInfo) []string {
	kept := statesOf(info)
	if info.Processes == 0 {
		kept = append(kept, "no process")
	}
	if info.Parked > 0 {
		kept = append(kept, count(info.Parked, "parked message"))
	}
	if info.Due == 0 && info.Parked < info.Pending {
		kept = append(kept, "none is due yet")
	}
	return kept
}
