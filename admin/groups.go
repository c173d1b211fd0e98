package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/operate"
)

// Group is a number of dead letters that have failed in the same way: in the same outbox, queue or
// consumer, with the same topic, and with errors that differ only in ids, long numbers and quoted
// values. [Group.Within] is the filter that chooses its letters.
type Group struct {
	// Consumer is the inbox's consumer, and empty for a group of an outbox or a queue, which is Target.
	Consumer string
	Target   Target
	Topic    string
	// Shape is the error without what differs from one message to the next: words with a digit are
	// "#", and the contents of quotes are "…". Numbers of up to three digits are kept, and so are
	// codes behind HTTP, status, code, SQLSTATE and errno. It has at most 200 bytes.
	Shape string
	// Count is the number of letters.
	Count int
	// First and Last are when the first and the last of them died.
	First, Last time.Time
	// Example is the id of the latest of them.
	Example int64
}

// Within narrows the filter with which [Admin.Groups] was called to the letters of the group. If
// the groups were not capped, it chooses [Group.Count] letters.
func (g Group) Within(filter Filter) Filter {
	filter.Consumer, filter.Target, filter.Topic, filter.Shape, filter.Limit = g.Consumer, g.Target, g.Topic, g.Shape, 0
	return filter
}

// Groups is what [Admin.Groups] returns.
type Groups struct {
	// Groups are the groups, the largest first.
	Groups []Group
	// Letters is the number of letters in all groups, also in those beyond the limit.
	Letters int
	// Capped is set if there are more letters than were looked at: the counts are then those of the latest ones.
	Capped bool
	// More is the number of groups beyond the limit.
	More int
}

// Groups sorts the dead letters that match the filter by the way in which they failed. It takes the latest 10,000 that match among the latest 20,000, and
// says so if there may be more. [Filter.Limit] is the largest number of groups to return: 100 by default, and an error above 1000. To act on a group, take
// the filter that [Group.Within] returns.
//
// Groups fails with [ErrNotFound] if the filter names an outbox or a queue that does not exist.
func (a *Admin) Groups(ctx context.Context, filter Filter) (Groups, error) {
	limit, err := pageLimit(filter.Limit)
	if err := errors.Join(filter.Validate(), err); err != nil {
		return Groups{}, fmt.Errorf("admin: group dead letters: %w", operate.Invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return Groups{}, err
	}
	found, letters, capped, err := a.letters.Groups(ctx, filter.chosen())
	if err != nil {
		return Groups{}, failed(err)
	}
	groups := Groups{Letters: letters, Capped: capped, More: max(len(found)-limit, 0)}
	for _, g := range found[:min(len(found), limit)] {
		groups.Groups = append(groups.Groups, Group{
			Consumer: g.Consumer, Target: Target{spool: g.Spool}, Topic: g.Topic, Shape: g.Shape, Count: g.Count,
			First: g.First, Last: g.Last, Example: g.Example,
		})
	}
	return groups, nil
}
