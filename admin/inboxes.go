package admin

import (
	"context"
	"maps"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// InboxInfo is the state of the inboxes of one consumer.
type InboxInfo struct {
	Consumer string
	// Dead is the number of dead letters that no operator has resolved, among the latest ones of
	// all inboxes together, up to [CountedUpTo].
	Dead int
	// HasHistory tells whether a history was ever kept. Without one, [Admin.Messages] and
	// [Admin.Replay] fail with [ErrNotFound].
	HasHistory bool
	// Done is the number of messages in the history up to [CountedUpTo], 0 if none is kept.
	// [Admin.Messages] lists them, for the target [Inbox].
	Done int
	// Settings are what operators have stored. Only History has an effect.
	Settings Settings
}

// Inboxes returns the consumers whose inboxes have unresolved dead letters or have ever kept a
// history, by name. It executes two statements for each history, and four others. It reads at most
// some 10,000 entries of an index for each number, however many there are.
func (a *Admin) Inboxes(ctx context.Context) ([]InboxInfo, error) {
	letters, err := a.operator.counts.Inboxes(ctx)
	if err != nil {
		return nil, failed(spool.Wrap("count dead letters of inboxes", err))
	}
	found := map[string]*InboxInfo{}
	for _, in := range letters {
		found[in.Consumer] = &InboxInfo{Consumer: in.Consumer, Dead: in.Dead}
	}
	spools, err := a.operator.spools(ctx)
	if err != nil {
		return nil, failed(spool.Wrap("list histories of inboxes", err))
	}
	spools = slices.DeleteFunc(spools, func(s *overview) bool { return !s.isInbox() })
	numbers, err := a.operator.counts.Histories(ctx, idsOf(spools))
	if err != nil {
		return nil, failed(spool.Wrap("count histories of inboxes", err))
	}
	for _, s := range spools {
		_, consumer := spool.Named(s.Name)
		info := found[consumer]
		if info == nil {
			info = &InboxInfo{Consumer: consumer}
			found[consumer] = info
		}
		info.HasHistory, info.Done, info.Settings = true, numbers[s.id].Done, Settings(s.Settings)
	}
	inboxes := make([]InboxInfo, 0, len(found))
	for _, consumer := range slices.Sorted(maps.Keys(found)) {
		inboxes = append(inboxes, *found[consumer])
	}
	return inboxes, nil
}

func idsOf(spools []*overview) []int64 {
	ids := make([]int64, len(spools))
	for i, s := range spools {
		ids[i] = s.id
	}
	return ids
}
