package admin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/counts"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// InboxInfo is the state of the inboxes of one consumer.
type InboxInfo struct {
	Consumer string
	// Dead is the number of dead letters that no operator has resolved, and Accuracy says how it was found.
	Dead     int
	Accuracy Accuracy
	// HasHistory tells whether a history was ever kept. Without one, [Admin.Done] and [Admin.Replay] fail with [ErrNotFound].
	HasHistory bool
	// Done is the number of messages in the history, 0 if none is kept, and DoneAccuracy says how it was found. [Admin.Done] lists them, for the
	// target [Inbox].
	Done         int
	DoneAccuracy Accuracy
	// CountedAge is how long ago those numbers that are [Counted] were counted, by the database's clock; the age of the older one if they differ, and 0
	// without one.
	CountedAge time.Duration
	// Settings are what operators have stored. Only History has an effect.
	Settings Settings
}

// Inboxes returns the consumers whose inboxes have unresolved dead letters or have ever kept a history, by name. It executes two statements for
// each history, and four others. It reads at most some 10,000 entries of an index for each number, however many there are.
func (a *Admin) Inboxes(ctx context.Context) ([]InboxInfo, error) {
	found, err := a.operator.Inboxes(ctx)
	if err != nil {
		return nil, failed(err)
	}
	inboxes := make([]InboxInfo, len(found))
	for i, in := range found {
		inboxes[i] = InboxInfo{
			Consumer: in.Consumer, Dead: in.Dead.N, Accuracy: Accuracy(in.Dead.Accuracy), HasHistory: in.Kept,
			Done: in.Done.N, DoneAccuracy: Accuracy(in.Done.Accuracy), CountedAge: in.CountedAge, Settings: Settings(in.Settings),
		}
	}
	return inboxes, nil
}

// storedInbox is what operators see of the inboxes of a consumer.
type storedInbox struct {
	counts.Inbox
	// Kept says whether a history was ever kept. Done is the number of messages in it, and Settings
	// are those that operators have stored for it. Both are zero without one.
	Kept     bool
	Done     counts.Number
	Settings spool.Settings
}

// Inboxes returns the consumers that have unresolved dead letters or a history, by name, at a cost
// that does not grow with the number of messages.
func (o *operator) Inboxes(ctx context.Context) ([]*storedInbox, error) {
	letters, err := o.counts.Inboxes(ctx)
	if err != nil {
		return nil, spool.Wrap("count dead letters of inboxes", err)
	}
	inboxes, byName := make([]*storedInbox, 0, len(letters)), map[string]*storedInbox{}
	add := func(found counts.Inbox) *storedInbox {
		inbox := &storedInbox{Inbox: found, Done: counts.Number{Accuracy: counts.Exact}}
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
	spools = slices.DeleteFunc(spools, func(s *overview) bool { return !s.isInbox() })
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
	slices.SortFunc(inboxes, func(a, b *storedInbox) int { return strings.Compare(a.Consumer, b.Consumer) })
	return inboxes, nil
}

func idsOf(spools []*overview) []int64 {
	ids := make([]int64, len(spools))
	for i, s := range spools {
		ids[i] = s.id
	}
	return ids
}
