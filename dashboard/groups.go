package dashboard

import (
	"context"

	"github.com/postbox-go/watermill-postbox/admin"
)

// groupsView sorts dead letters by the way in which they failed.
type groupsView struct {
	Filter   filterForm
	Filtered bool
	Rows     []groupRow
	Letters  int
	Capped   bool
	// Open is as in [lettersView], and the others are rights.
	Open, Acts, Edits bool
	More              int
	List              link
}

// groupRow is a group, with its letters, the latest of them, and what can be done to all of them.
type groupRow struct {
	admin.Group
	In                       string
	List, Example            link
	Requeue, Resolve, Delete link
	Edit                     link // of the latest one
}

func (h *Handler) groups(ctx context.Context, q *request) (any, error) {
	filter, err := q.letterFilter()
	if err != nil {
		return nil, err
	}
	found, capped, err := h.admin.Groups(ctx, filter)
	if err != nil {
		return nil, err
	}
	form, err := h.filterForm(ctx, q)
	if err != nil {
		return nil, err
	}
	chosen := q.chosenBy(filterFields)
	view := groupsView{
		Filter: form, Filtered: len(chosen) > 0, Open: filter.Resolved == "", Acts: q.access.allows(toAct), Edits: q.access.allows(toEdit), Capped: capped, More: max(0, len(found)-pageSize), List: link{lettersPage, chosen},
	}
	for i, group := range found {
		view.Letters += group.Count
		if i < pageSize {
			view.Rows = append(view.Rows, rowOfGroup(group, view.List))
		}
	}
	return view, nil
}

// rowOfGroup narrows the filter of the page to the group, as [admin.Group.Filter] does.
func rowOfGroup(group admin.Group, all link) groupRow {
	row := groupRow{Group: group, Example: toLetter(group.Example), Edit: to("edit", "id", idText(group.Example))}
	row.List = all.with("topic", escaped(group.Topic)).with("shape", escaped(group.Shape))
	if group.Consumer != "" {
		row.In = "Consumer " + escaped(group.Consumer)
		row.List = row.List.with("consumer", escaped(group.Consumer))
	} else {
		row.In = kindOf(group.Target) + " " + escaped(group.Target.Name)
		row.List = row.List.with(group.Target.Kind, escaped(group.Target.Name))
	}
	row.Requeue, row.Resolve, row.Delete = toBulk(bulkRequeue, row.List.query), toBulk(bulkResolve, row.List.query), toBulk(bulkDelete, row.List.query)
	return row
}
