package dashboard

import (
	"context"
	"slices"

	"github.com/postbox-go/watermill-postbox/admin"
)

// inboxView is one inbox with a history.
type inboxView struct {
	inboxCard
	Settings []fact
	Set      link
}

// inboxCard is an inbox with a history on the overview.
type inboxCard struct {
	admin.QueueInfo
	Link, Messages, Letters link
}

func inboxCardOf(info admin.QueueInfo) inboxCard {
	return inboxCard{info, toTarget(inboxPage, info.Target), toTarget(messagesPage, info.Target), lettersOf(info.Target)}
}

func (h *Handler) inbox(ctx context.Context, q *request) (any, error) {
	target, now, err := h.countFor(ctx, q)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(now.inboxes, func(info admin.QueueInfo) bool { return info.HasHistory && info.Target == target })
	if i < 0 {
		return nil, notThere(target)
	}
	info := now.inboxes[i]
	return inboxView{
		inboxCard: inboxCardOf(info), Settings: settingsOf(info.Settings), Set: toTarget(settingsPage, target),
	}, nil
}
