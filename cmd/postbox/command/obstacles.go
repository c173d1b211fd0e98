package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/postbox-go/watermill-postbox/admin"
)

// obstacles says what keeps the messages of these targets, with the commands that help. Operators
// must not wait for what does not end by itself. It says nothing if that cannot be read: the role
// may have the rights of a probe alone.
func (s *session) obstacles(ctx context.Context, of map[admin.Target]bool) string {
	queues, err := s.queues(ctx)
	if err != nil {
		return ""
	}
	var text strings.Builder
	for _, n := range admin.Needs(queues) {
		if of[n.Target] && n.Pending > 0 && n.Trouble != "late" && n.Trouble != "letters" {
			fmt.Fprintf(&text, "; %s %s See: %s", n.Target, n.Text, commandOf(n))
		}
	}
	for _, info := range queues {
		if of[info.Target] && info.Due == 0 && info.Parked < info.Pending {
			fmt.Fprintf(&text, "; %s: none is due yet", info.Target)
		}
	}
	return text.String()
}
