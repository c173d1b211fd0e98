package admin

import (
	"context"
	"maps"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// inboxes returns the consumers whose inboxes have unresolved dead letters or have ever kept a
// history, by name. It executes two statements for each history, and four others.
func (a *Admin) inboxes(ctx context.Context) ([]QueueInfo, error) {
	letters, err := a.operator.counts.Inboxes(ctx)
	if err != nil {
		return nil, failed(spool.Wrap("count dead letters of inboxes", err))
	}
	found := map[string]*QueueInfo{}
	for _, in := range letters {
		found[in.Consumer] = &QueueInfo{Target: Target{Kind: spool.KindInbox, Name: in.Consumer}, Dead: in.Dead, DeadLately: in.Lately}
	}
	spools, err := a.operator.spools(ctx)
	if err != nil {
		return nil, failed(spool.Wrap("list histories of inboxes", err))
	}
	spools = slices.DeleteFunc(spools, func(s *overview) bool { return !s.isInbox() })
	numbers, err := a.operator.counts.Spools(ctx, idsOf(spools))
	if err != nil {
		return nil, failed(spool.Wrap("count histories of inboxes", err))
	}
	for _, s := range spools {
		if dead := found[s.Target.Name]; dead != nil {
			s.Dead, s.DeadLately = dead.Dead, dead.DeadLately
		}
		s.HasHistory, s.Done, found[s.Target.Name] = true, numbers[s.id].Done, &s.QueueInfo
	}
	inboxes := make([]QueueInfo, 0, len(found))
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
