package dashboard

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// auditView is a page of what operators did, the latest first.
type auditView struct {
	Targets  []option
	Form     url.Values
	Filtered bool
	Running  []*bulkRun // in this process
	Rows     []auditRow

	paging
}

// auditRow is an action of an operator.
type auditRow struct {
	admin.AuditEntry
	// In is the outbox, the queue or the inbox, if the action has one.
	In   string
	Link link
	// About is the thing, or the filter, that the action was about.
	About string
	// Resume leads to the question whether the same action does the rest, if it has one, and Left
	// is how many that would change.
	Resume link
	Left   tally
}

// auditFields are the fields of an address that choose actions.
var auditFields = []string{outboxField, queueField, inboxField, "actor", "action", "from", "until"}

func (h *Handler) audit(ctx context.Context, q *request) (any, error) {
	filter, err := q.filter(auditFields)
	if err != nil {
		return nil, err
	}
	filter.After = q.query.Get("before")
	found, err := lookFor(ctx, h, q, filter, h.admin.Audit)
	if err != nil {
		return nil, err
	}
	targets, err := h.allTargets(ctx)
	if err != nil {
		return nil, err
	}
	chosen := link{auditPage, q.chosenBy(auditFields)}
	target, isChosen := q.optionalTarget()
	view := auditView{
		Targets: append([]option{{Text: "all", Chosen: !isChosen}}, targetOptions(targets, target)...),
		Form:    q.query, Filtered: len(chosen.query) > 0, Running: h.bulks.all(),
	}
	until := h.searchUntil()
	for _, entry := range found.Rows {
		view.Rows = append(view.Rows, h.rowOf(ctx, q, entry, until))
	}
	view.paging = pagingOf(q, chosen, "before", found)
	return view, nil
}

// rowOf counts what an action has left, if there is still time for it.
func (h *Handler) rowOf(ctx context.Context, q *request, entry admin.AuditEntry, until time.Time) auditRow {
	row := auditRow{AuditEntry: entry, About: entry.Subject}
	if entry.Filter != "" {
		row.About = entry.Filter
	}
	if entry.Target != (admin.Target{}) {
		row.In, row.Link = kindOf(entry.Target)+" "+escaped(entry.Target.Name), toOverviewOf(entry.Target)
	}
	do := strings.ReplaceAll(entry.Action, " ", "-")
	if kind, exists := h.bulkKinds()[do]; exists && entry.Rest.All && entry.Rest.Limit == 0 { //nolint:contextcheck // it runs nothing
		row.Resume = toBulk(do, choosing(entry.Rest, kind.of.fields))
		if time.Now().Before(until) {
			row.Left, _ = kind.of.count(ctx, &request{q.Request, q.access, row.Resume.query}) // the question says what is wrong
		}
	}
	return row
}
