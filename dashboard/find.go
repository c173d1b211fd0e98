package dashboard

import (
	"context"

	"github.com/postbox-go/watermill-postbox/admin"
)

// findField is the field of an address that says what a user looks for.
const findField = "text"

// findView is what has become of a message.
type findView struct {
	Text  string
	Rows  []eventRow
	Found admin.Found
}

// eventRow is something that has happened, with the message or the dead letter.
type eventRow struct {
	admin.Event
	In   string
	Link link
}

func (h *Handler) find(ctx context.Context, q *request) (any, error) {
	view := findView{Text: q.query.Get(findField)}
	if view.Text == "" {
		return view, nil
	}
	found, err := h.admin.Find(ctx, q.name(findField))
	if err != nil {
		return nil, err
	}
	view.Found = *found
	for _, e := range found.Events {
		row := eventRow{Event: e}
		switch {
		case e.Letter != 0:
			row.In, row.Link = "Dead letter "+idText(e.Letter), toLetter(e.Letter)
		case e.Message != 0:
			row.In, row.Link = kindOf(e.Target)+" "+escaped(e.Target.Name)+", message "+idText(e.Message), toMessage(e.Target, e.Message)
		}
		view.Rows = append(view.Rows, row)
	}
	return view, nil
}
