package dashboard

import (
	"context"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// auditView is a page of what operators did, the latest first.
type auditView struct {
	Targets                    []option
	Actor, Action, From, Until string
	Filtered                   bool
	Rows                       []auditRow
	First, Next                string
	// SearchOn, Looked and Long are those of [messagesView].
	SearchOn string
	Looked   int
	Long     bool
}

// auditRow is an action of an operator.
type auditRow struct {
	admin.AuditEntry
	// In is the outbox, the queue or the inbox, if the action has one.
	In   string
	Link link
	// About is the thing, or the filter, that the action was about.
	About string
}

// auditFields are the fields of an address that choose actions.
var auditFields = []string{outboxField, queueField, inboxField, "actor", "action", "from", "until"}

func (h *Handler) audit(ctx context.Context, q *request) (any, error) {
	filter, err := q.auditFilter()
	if err != nil {
		return nil, err
	}
	found, err := lookFor(ctx, h, q, filter, h.admin.Audit)
	if err != nil {
		return nil, err
	}
	targets, err := h.allTargets(ctx)
	if err != nil {
		return nil, err
	}
	chosen := link{auditPage, nil}
	for _, field := range auditFields {
		if value := q.query.Get(field); value != "" {
			chosen = chosen.with(field, value)
		}
	}
	target, isChosen := q.optionalTarget()
	if isChosen {
		chosen = chosen.with(target.Kind, escaped(target.Name))
	}
	view := auditView{
		Targets: append([]option{{Text: "all", Chosen: !isChosen}}, targetOptions(targets, target)...),
		Actor:   q.query.Get("actor"), Action: q.query.Get("action"), From: q.query.Get("from"), Until: q.query.Get("until"),
		Filtered: len(chosen.query) > 0,
	}
	for _, entry := range found.Rows {
		view.Rows = append(view.Rows, rowOf(entry))
	}
	if filter.After != "" {
		view.First = chosen.String()
	}
	view.Long, view.Looked = q.query.Get(searchField) == searchLong, found.Looked
	switch next := chosen.with("before", found.Next); {
	case found.Next == "":
	case len(found.Rows) == pageSize:
		view.Next = next.String()
	default:
		view.SearchOn = next.with(searchField, searchLong).String()
	}
	return view, nil
}

func rowOf(entry admin.AuditEntry) auditRow {
	row := auditRow{AuditEntry: entry, About: entry.Subject}
	if entry.Filter != "" {
		row.About = entry.Filter
	}
	if entry.Target != (admin.Target{}) {
		row.In, row.Link = kindOf(entry.Target)+" "+escaped(entry.Target.Name), toOverviewOf(entry.Target)
	}
	return row
}

func (q *request) auditFilter() (filter admin.Filter, err error) {
	filter = admin.Filter{Actor: q.name("actor"), Action: q.name("action"), Limit: pageSize}
	filter.Target, _ = q.optionalTarget()
	for _, field := range []struct {
		name string
		at   *time.Time
	}{{"from", &filter.From}, {"until", &filter.Until}} {
		if *field.at, err = moment(field.name, q.query.Get(field.name)); err != nil {
			return filter, err
		}
	}
	filter.After = q.query.Get("before")
	return filter, nil
}
