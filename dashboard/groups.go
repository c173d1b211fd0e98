package dashboard

import (
	"context"
	"regexp"
	"strings"

	"github.com/postbox-go/watermill-postbox/admin"
)

// groupsView sorts dead letters by the way in which they failed.
type groupsView struct {
	Filter   filterForm
	Filtered bool
	Rows     []groupRow
	Letters  int
	Capped   bool
	More     int
	List     link
}

// groupRow is a group, with its letters, and the latest of them.
type groupRow struct {
	admin.Group
	In            string
	List, Example link
}

func (h *Handler) groups(ctx context.Context, q *request) (any, error) {
	filter, err := q.letterFilter()
	if err != nil {
		return nil, err
	}
	filter.Limit = pageSize
	found, err := h.admin.Groups(ctx, filter)
	if err != nil {
		return nil, err
	}
	form, err := h.filterForm(ctx, q)
	if err != nil {
		return nil, err
	}
	chosen := q.chosenBy(filterFields)
	view := groupsView{
		Filter: form, Filtered: len(chosen) > 0, Letters: found.Letters, Capped: found.Capped, More: found.More, List: link{lettersPage, chosen},
	}
	for _, group := range found.Groups {
		view.Rows = append(view.Rows, rowOfGroup(group, view.List))
	}
	return view, nil
}

// rowOfGroup narrows the filter of the page to the group.
func rowOfGroup(group admin.Group, all link) groupRow {
	row := groupRow{Group: group, List: all.with("topic", escaped(group.Topic)), Example: toLetter(group.Example)}
	if group.Consumer != "" {
		row.In = "Consumer " + escaped(group.Consumer)
		row.List = row.List.with("consumer", escaped(group.Consumer))
	} else {
		row.In = kindOf(group.Target) + " " + escaped(group.Target.Name())
		row.List = row.List.with(targetKind(group.Target), escaped(group.Target.Name()))
	}
	if part := commonPart(group.Shape); part != "" && all.query.Get("error") == "" {
		row.List = row.List.with("error", escaped(part))
	}
	return row
}

// placeholder is what a shape has in place of what differs.
var placeholder = regexp.MustCompile(`\S*#\S*|"…"|'…'|…`)

// commonPart is the longest part of a shape that each error of the group contains.
func commonPart(shape string) string {
	longest := ""
	for _, part := range placeholder.Split(shape, -1) {
		if part = strings.TrimSpace(part); len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}
