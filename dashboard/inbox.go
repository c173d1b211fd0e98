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
	target := info.Target
	return inboxCard{
		QueueInfo: info, Link: toTarget(inboxPage, target), Messages: toTarget(messagesPage, target), Letters: to(lettersPage, "consumer", target.Name),
	}
}

func (h *Handler) inbox(ctx context.Context, q *request) (any, error) {
	target, now, err := h.countFor(ctx, q)
	if err != nil {
		return nil, err
	}
	info, err := inboxOf(now.inboxes, target)
	if err != nil {
		return nil, err
	}
	return inboxView{
		inboxCard: inboxCardOf(info), Settings: settingsOf(info.Settings), Set: toTarget(settingsPage, target),
	}, nil
}

// inboxOf returns the state of an inbox.
func inboxOf(inboxes []admin.QueueInfo, target admin.Target) (admin.QueueInfo, error) {
	i := slices.IndexFunc(inboxes, func(info admin.QueueInfo) bool { return info.HasHistory && info.Target == target })
	if i < 0 {
		return admin.QueueInfo{}, notThere(target)
	}
	return inboxes[i], nil
}
