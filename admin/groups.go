package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Group is a number of dead letters that have failed in the same way: in the same outbox, queue or
// consumer, with the same topic, and with errors that differ only in ids, long numbers and quoted
// values.
type Group struct {
	// Count is the number of letters.
	Count int `json:"count"`
	// Consumer is the inbox's consumer, and empty for a group of an outbox or a queue, which is
	// Target.
	Consumer string `json:"consumer,omitempty"`
	Target   Target `json:"target,omitzero"`
	Topic    string `json:"topic"`
	// Shape is the error without what differs from one message to the next: words with a digit are
	// "#", and the contents of quotes are "…". Numbers of up to three digits are kept, and so are
	// codes behind HTTP, status, code, SQLSTATE and errno. It has at most 200 bytes.
	Shape string `json:"shape"`
	// First and Last are when the first and the last of them died.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Example is the id of the latest of them.
	Example int64 `json:"example"`
	// Filter is that of the call, narrowed to the letters of the group. Unless the groups are
	// capped, it chooses Count letters.
	Filter Filter `json:"-"`
}

// Groups sorts the dead letters that match the filter by the way in which they failed, the largest
// group first. It takes the latest 10,000 that match among the latest 20,000: if there are more,
// the counts are capped. [Filter.Limit] is the largest number of groups to return, at most 1000,
// and 0 for all. To act on a group, take [Group.Filter].
//
// Groups fails with [ErrNotFound] if the filter names an outbox or a queue that does not exist.
func (a *Admin) Groups(ctx context.Context, filter Filter) (groups []Group, capped bool, err error) {
	limit, err := filter.listed(deadLetters)
	after, idErr := cursor(filter.After).parseID(ofLetters)
	if err := errors.Join(err, idErr, filter.ofInbox()); err != nil {
		return nil, false, fmt.Errorf("admin: group dead letters: %w", invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return nil, false, err
	}
	chosen := filter.ofLetters()
	chosen.After = after
	groups, capped, err = a.letters.Groups(ctx, chosen)
	if err != nil {
		return nil, false, failed(err)
	}
	if filter.Limit > 0 {
		groups = groups[:min(len(groups), limit)]
	}
	for i := range groups {
		g := &groups[i]
		g.Filter = filter
		g.Filter.After, g.Filter.NewestFirst = "", false // it is for actions, too
		g.Filter.Consumer, g.Filter.Target, g.Filter.Topic, g.Filter.Shape, g.Filter.Limit = g.Consumer, g.Target, g.Topic, g.Shape, 0
	}
	return groups, capped, nil
}

const (
	// maxGrouped is how many dead letters [letterStore.Groups] puts into groups: some 5 MB.
	maxGrouped = 10_000
	// maxLooked is how many it looks at to find them.
	maxLooked = 20_000
)

// letterKin is what the dead letters of a group have in common.
type letterKin struct {
	Consumer string
	Target   Target
	Topic    string
	Shape    string // of the error
}

// Groups returns the groups of the newest letters that the filter selects, the largest first. If it
// is capped, there may be more letters.
func (l *letterStore) Groups(ctx context.Context, filter operatorsql.DeadLetterFilter) (groups []Group, capped bool, err error) {
	looked, before, _, err := l.ends(ctx, operatorsql.DeadLetterFilter{After: filter.After, NewestFirst: true}, maxLooked+1)
	if err != nil {
		return nil, false, spool.Wrap("group dead letters", err)
	}
	if capped = looked > maxLooked; capped {
		filter.After = before
	}
	filter.Limit = maxGrouped + 1
	query := l.statements.DeadLetterErrors(filter)
	found, looked := map[letterKin]*Group{}, 0
	err = spool.Each(ctx, l.db, query, func(scan spool.Scan) error {
		if looked++; looked > maxGrouped {
			capped = true
			return nil // it was the last row
		}
		var kin letterKin
		var id, died int64
		var target, text string
		err := scan(&id, &died, &target, &kin.Consumer, &kin.Topic, &text)
		kin.Target, kin.Shape = targetOf(target), shapeOf(text)
		if filter.Shape == "" || filter.Shape == kin.Shape {
			add(found, kin, id, time.UnixMicro(died))
		}
		return err
	})
	if err != nil {
		return nil, false, spool.Wrap("group dead letters", err)
	}
	return sorted(found), capped, nil
}

// add adds a letter to its group. Letters come with the latest first.
func add(groups map[letterKin]*Group, kin letterKin, id int64, died time.Time) {
	g := groups[kin]
	if g == nil {
		g = &Group{Consumer: kin.Consumer, Target: kin.Target, Topic: kin.Topic, Shape: kin.Shape, First: died, Last: died, Example: id}
		groups[kin] = g
	}
	g.Count++
	if died.Before(g.First) {
		g.First = died
	}
	if died.After(g.Last) {
		g.Last = died
	}
}

// sorted returns the largest group first, and of two that are as large, the one with the latest
// letter.
func sorted(found map[letterKin]*Group) []Group {
	var groups []Group
	for _, g := range found {
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Example, a.Example), strings.Compare(a.Shape, b.Shape))
	})
	return groups
}
