package operate

import (
	"context"
	"slices"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/counts"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Inbox is what operators see of the inboxes of a consumer.
type Inbox struct {
	counts.Inbox
	// Kept says whether a history was ever kept. Done is the number of messages in it, and Settings are those that operators have stored for it. Both are
	// zero without one.
	Kept     bool
	Done     counts.Number
	Settings spool.Settings
}

// Inboxes returns the consumers that have unresolved dead letters or a history, by name, at a cost that does not grow with the number of messages.
func (o *Operator) Inboxes(ctx context.Context) ([]*Inbox, error) {
	letters, err := o.counts.Inboxes(ctx)
	if err != nil {
		return nil, spool.Wrap("count dead letters of inboxes", err)
	}
	inboxes, byName := make([]*Inbox, 0, len(letters)), map[string]*Inbox{}
	add := func(found counts.Inbox) *Inbox {
		inbox := &Inbox{Inbox: found, Done: counts.Number{Accuracy: counts.Exact}}
		inboxes, byName[spool.InboxName(found.Consumer)] = append(inboxes, inbox), inbox
		return inbox
	}
	for _, found := range letters {
		add(found)
	}
	spools, err := o.spools(ctx)
	if err != nil {
		return nil, spool.Wrap("list histories of inboxes", err)
	}
	spools = slices.DeleteFunc(spools, func(s *Overview) bool { return !s.isInbox() })
	numbers, err := o.counts.Histories(ctx, idsOf(spools))
	if err != nil {
		return nil, spool.Wrap("count histories of inboxes", err)
	}
	for _, s := range spools {
		inbox := byName[s.Name]
		if inbox == nil {
			_, consumer := spool.Named(s.Name)
			inbox = add(counts.Inbox{Consumer: consumer, Dead: counts.Number{Accuracy: counts.Exact}})
		}
		inbox.Kept, inbox.Done, inbox.Settings = true, numbers[s.id].Done, s.Settings
		inbox.CountedAge = max(inbox.CountedAge, numbers[s.id].CountedAge)
	}
	slices.SortFunc(inboxes, func(a, b *Inbox) int { return strings.Compare(a.Consumer, b.Consumer) })
	return inboxes, nil
}

func idsOf(spools []*Overview) []int64 {
	ids := make([]int64, len(spools))
	for i, s := range spools {
		ids[i] = s.id
	}
	return ids
}
