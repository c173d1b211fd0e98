package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/operate"
)

// StuckKey is an ordering key of which nothing is handled now: its first message has failed and waits for its next attempt, or
// is parked, or an operator has paused the key.
type StuckKey struct {
	Key string
	// Head is the first message of the key, without payload, metadata and failures. Its status is Retrying or Parked, or, if the
	// key is paused, also Ready. DueAt is its next attempt.
	Head Message
	// Since is when the head failed for the first time, or when the key was paused if the head has not failed. If the record of that failure is not
	// kept any more, it is when the head was written. All times are of the database's clock.
	Since time.Time
	// Error is the text of the head's last failure, or "" if it has not failed.
	Error string
	// PausedSince is when an operator paused the key; it is zero if the key is not paused.
	PausedSince time.Time
	// Behind is the number of ready messages of the key that wait behind the head. In a queue of mode Single they do not wait.
	Behind int
	// MoreBehind is true if Behind is a lower bound, since not all messages were looked at.
	MoreBehind bool
}

// StuckKeys lists the stuck keys of an outbox or a queue, up to the limit: 100 for 0, and an error above 1000. If there are more, it has
// those whose heads were written first. The key that has been stuck for longest comes first. A message that failed and is
// tried again soon is in the list, too: its DueAt says when. Keys that wait only because a topic is paused are not.
//
// Use it to find what to act on: [Admin.RunNow] or [Admin.Bury] for the head, and [Admin.ResumeKey] for a paused or parked key.
//
// The cost is bounded however many keys are stuck and however many messages wait: it takes
// five statements, and one for each 100 paused keys, and looks at 20,000 messages at most to count
// those that wait. A paused key without a message among these is left out.
func (a *Admin) StuckKeys(ctx context.Context, target Target, limit int) ([]StuckKey, error) {
	most, err := pageLimit(limit)
	if err != nil {
		return nil, fmt.Errorf("admin: list stuck keys of %s: %w", target, operate.Invalid(err))
	}
	found, err := a.operator.StuckKeys(ctx, target.spool, most)
	if err != nil {
		return nil, failed(err)
	}
	keys := make([]StuckKey, len(found))
	for i, k := range found {
		keys[i] = StuckKey{
			Key: k.Key, Head: publicMessage(k.Head), Since: k.Since, Error: k.Error, PausedSince: k.PausedSince,
			Behind: k.Behind, MoreBehind: k.AtLeast,
		}
	}
	return keys, nil
}
