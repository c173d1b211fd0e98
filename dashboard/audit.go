package dashboard

import (
	"context"
	"strconv"
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
	entries, err := h.admin.Audit(ctx, filter)
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
		chosen = chosen.with(targetKind(target), escaped(target.Name()))
	}
	view := auditView{
		Targets: append([]option{{Text: "all", Chosen: !isChosen}}, targetOptions(targets, target)...),
		Actor:   q.query.Get("actor"), Action: q.query.Get("action"), From: q.query.Get("from"), Until: q.query.Get("until"),
		Filtered: len(chosen.query) > 0,
	}
	for _, entry := range entries {
		view.Rows = append(view.Rows, rowOf(entry))
	}
	if filter.Before > 0 {
		view.First = chosen.String()
	}
	if len(entries) == pageSize {
		view.Next = chosen.with("before", idText(entries[pageSize-1].ID)).String()
	}
	return view, nil
}

func rowOf(entry admin.AuditEntry) auditRow {
	row := auditRow{AuditEntry: entry, About: entry.Subject}
	if entry.Filter != "" {
		row.About = entry.Filter
	}
	if entry.Target != (admin.Target{}) {
		row.In, row.Link = kindOf(entry.Target)+" "+escaped(entry.Target.Name()), toOverviewOf(entry.Target)
	}
	return row
}

func (q *request) auditFilter() (filter admin.AuditFilter, err error) {
	filter = admin.AuditFilter{Actor: q.name("actor"), Action: q.name("action"), Limit: pageSize}
	filter.Target, _ = q.optionalTarget()
	for _, field := range []struct {
		name string
		at   *time.Time
	}{{"from", &filter.From}, {"until", &filter.Until}} {
		if *field.at, err = moment(field.name, q.query.Get(field.name)); err != nil {
			return filter, err
		}
	}
	if before := q.query.Get("before"); before != "" {
		if filter.Before, err = strconv.ParseInt(before, 10, 64); err != nil {
			return filter, badf("before: %q is not the id of an entry", before)
		}
	}
	return filter, nil
}
