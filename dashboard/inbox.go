package dashboard

import (
	"context"
	"slices"

	"github.com/postbox-go/watermill-postbox/admin"
)

// inboxView is one inbox with a history.
type inboxView struct {
	inboxCard
	Target   admin.Target
	Settings []fact
	Set      link
}

// inboxCard is an inbox with a history on the overview.
type inboxCard struct {
	admin.InboxInfo
	Link, Messages, Letters link
}

func inboxCardOf(info admin.InboxInfo) inboxCard {
	target := admin.Inbox(info.Consumer)
	return inboxCard{
		InboxInfo: info, Link: toTarget(inboxPage, target), Messages: toTarget(messagesPage, target), Letters: to(lettersPage, "consumer", info.Consumer),
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
		inboxCard: inboxCardOf(info), Target: target, Settings: settingsOf(info.Settings), Set: toTarget(settingsPage, target),
	}, nil
}

// inboxOf returns the state of an inbox.
func inboxOf(inboxes []admin.InboxInfo, target admin.Target) (admin.InboxInfo, error) {
	i := slices.IndexFunc(inboxes, func(info admin.InboxInfo) bool { return info.HasHistory && admin.Inbox(info.Consumer) == target })
	if i < 0 {
		return admin.InboxInfo{}, notThere(target)
	}
	return inboxes[i], nil
}
