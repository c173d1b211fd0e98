package dashboard

import (
	"context"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// pageSize is the number of rows of a list.
const pageSize = 50

// option is one of a list in a form.
type option struct {
	Value, Text string
	Chosen      bool
}

// messagesView is a page of the messages of an outbox, a queue or an inbox.
type messagesView struct {
	paging

	Filter   filterForm
	Kind     string
	Target   admin.Target
	Filtered bool
	Rows     []admin.Message
	Done     bool
	// The addresses of the actions on all that match, each of which asks for a confirmation first.
	// Waiting is true unless only ready messages are chosen, which need not wait.
	RunNow, Reschedule, Bury, Replay link
	Waiting                          bool
}

// statusTexts say what a status means, in the order of a list.
var statusTexts = []option{
	{Value: "", Text: "all that are pending"},
	{Value: string(admin.Ready), Text: "ready"},
	{Value: string(admin.Scheduled), Text: "scheduled"},
	{Value: string(admin.Retrying), Text: "retrying"},
	{Value: string(admin.Parked), Text: "parked"},
	{Value: string(admin.Done), Text: "done, in the history"},
}

func (h *Handler) messages(ctx context.Context, q *request) (any, error) {
	targets, err := h.allTargets(ctx)
	if err != nil {
		return nil, err
	}
	target, chosen := q.optionalTarget()
	if !chosen && len(targets) == 0 {
		return messagesView{}, nil
	}
	if !chosen {
		target = targets[0]
	}
	status := admin.Status(q.query.Get("status"))
	if !slices.ContainsFunc(statusTexts, func(o option) bool { return o.Value == string(status) }) {
		return nil, badf("status: there is no status %q", status)
	}
	inForm := q.query.Has(targetField)
	q.query = without(q.query, targetField)
	q.query.Set(target.Kind, escaped(target.Name)) // also where the user has chosen none
	always := 1                                    // the target
	if target.Kind == inboxField {                 // it has no messages of another status
		if status != "" && status != admin.Done && !inForm { // in the form, the status may be a choice for another target
			return nil, badf("status: an inbox has no messages that are %s, since those wait in the broker: choose %s, or leave it out", status, admin.Done)
		}
		status = admin.Done
		q.query.Set("status", string(status))
		always++
	}
	filter := q.chosenBy(messageFields)
	view := messagesView{
		Filter: q.messageForm(targets, target), Kind: kindOf(target), Target: target, Done: status == admin.Done, Waiting: status != admin.Ready,
		Filtered: len(filter) > always,
		RunNow:   toBulk(bulkRunNow, filter), Reschedule: toBulk(bulkReschedule, filter), Bury: toBulk(bulkBury, filter), Replay: toBulk(bulkReplay, filter),
	}
	found, err := h.listed(ctx, q)
	if err != nil {
		return nil, err
	}
	view.Rows, view.paging = found.Rows, pagingOf(q, link{messagesPage, filter}, afterField, found)
	return view, nil
}

// searchField is the field of an address that says how long a page may look for messages. Without
// it, a page looks at a bounded number, so that it comes soon and costs the database little.
const (
	searchField = "search"
	searchLong  = "long"
)

// listed returns a page of the messages that the address chooses.
func (h *Handler) listed(ctx context.Context, q *request) (page[admin.Message], error) {
	filter, err := q.messageFilter()
	if err != nil {
		return page[admin.Message]{}, err
	}
	filter.After = q.query.Get(afterField)
	return lookFor(ctx, h, q, filter, h.admin.Messages)
}

// searchUntil is when a page ends a long search: after half of the time that it has.
func (h *Handler) searchUntil() time.Time { return time.Now().Add(h.config.Timeout / 2) }

// lookedAt is how many messages, dead letters or entries of the audit log a list looks at to find
// those of a page that goes on.
const lookedAt = 10_000

// page is a page of a list. If it has fewer rows than were asked for, it has looked at a part of
// the list, and Next is where it goes on.
type page[T any] struct {
	Rows   []T
	Looked int
	Next   string
}

// paging are the ways from a page of a list.
type paging struct {
	First, Next string
	// SearchOn is the address at which a search goes on that has found few entries. Looked is how
	// many it has looked at so far, and Long is set if it is such a continued search, which a page
	// does not repeat by itself.
	SearchOn string
	Looked   int
	Long     bool
}

// pagingOf are those from a page of the list at an address, whose field has the cursor.
func pagingOf[T any](q *request, here link, field string, found page[T]) paging {
	p := paging{Long: q.query.Get(searchField) == searchLong, Looked: found.Looked}
	if q.query.Get(field) != "" {
		p.First = here.String()
	}
	switch next := here.with(field, found.Next); {
	case found.Next == "":
	case len(found.Rows) == pageSize:
		p.Next = next.String()
	default:
		p.SearchOn = next.with(searchField, searchLong).String()
	}
	return p
}

// lister reads a page of a list.
type lister[T any] func(ctx context.Context, filter admin.Filter) ([]T, string, error)

// lookFor returns a page of what the filter chooses. If the address asks for a long search, it
// looks for more as long as it has time.
func lookFor[T any](ctx context.Context, h *Handler, q *request, filter admin.Filter, list lister[T]) (all page[T], err error) {
	var until time.Time
	switch long := q.query.Get(searchField); long {
	case "":
	case searchLong:
		until = h.searchUntil()
	default:
		return page[T]{}, badf("search: there is no choice %q", long)
	}
	for filter.Limit = pageSize; ; {
		rows, next, err := list(ctx, filter)
		if err != nil {
			return page[T]{}, err
		}
		all.Rows, all.Looked, all.Next = append(all.Rows, rows...), all.Looked+lookedAt, next
		if filter.Limit -= len(rows); filter.Limit == 0 || next == "" || time.Now().After(until) {
			return all, nil
		}
		filter.After = next
	}
}

func toMessage(target admin.Target, id int64) link {
	return toTarget(messagePage, target, "id", idText(id))
}

func targetOptions(targets []admin.Target, chosen admin.Target) []option {
	var options []option
	for _, target := range targets {
		options = append(options, option{targetOption(target), kindOf(target) + " " + escaped(target.Name), target == chosen})
	}
	return options
}

func choose(options []option, value string) []option {
	options = slices.Clone(options)
	for i := range options {
		options[i].Chosen = options[i].Value == value
	}
	return options
}

func (h *Handler) runNow(ctx context.Context, q *request) (link, error) {
	return onMessage(q, "due", func(one admin.Filter) (int, error) { return h.admin.Reschedule(ctx, one, time.Time{}) })
}

func (h *Handler) reschedule(ctx context.Context, q *request) (link, error) {
	at, err := q.dueTime()
	if err != nil {
		return link{}, err
	}
	return onMessage(q, "rescheduled", func(one admin.Filter) (int, error) { return h.admin.Reschedule(ctx, one, at) })
}

// bury leads to the list, since there is no page of the message any more.
func (h *Handler) bury(ctx context.Context, q *request) (link, error) {
	reason, err := q.reason()
	if err == nil {
		_, err = onMessage(q, "", func(one admin.Filter) (int, error) { return h.admin.Bury(ctx, one, reason) })
	}
	target, _ := q.optionalTarget()
	return toTarget(messagesPage, target, noticeField, "buried"), err
}

// onMessage does something to the message of the address, and leads to its page.
func onMessage(q *request, notice string, do func(one admin.Filter) (int, error)) (link, error) {
	target, err := q.target()
	if err != nil {
		return link{}, err
	}
	id, err := q.id()
	if err != nil {
		return link{}, err
	}
	_, err = do(admin.Filter{Target: target, ID: id})
	return toMessage(target, id).with(noticeField, notice), err
}
