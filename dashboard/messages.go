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
	Filter      messageForm
	Kind        string
	Target      admin.Target
	Filtered    bool
	Rows        []messageRow
	Done        bool
	First, Next string
	// SearchOn is the address at which a search goes on that has found few messages. Looked is how many it has looked at so far, and Long is set if it is
	// such a continued search, which a page does not repeat by itself.
	SearchOn string
	Looked   int
	Long     bool
	// The addresses of the actions on all that match, each of which asks for a confirmation first. Waiting is true unless only ready messages are
	// chosen, which need not wait.
	RunNow, Reschedule, Bury, Replay link
	Waiting                          bool
}

// messageRow is a message in a list.
type messageRow struct {
	admin.Message
	Link link
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
	q.query.Set(targetKind(target), escaped(target.Name())) // also where the user has chosen none
	always := 1                                             // the target
	if target.IsInbox() {                                   // it has no messages of another status
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
	for _, m := range found.Messages {
		view.Rows = append(view.Rows, messageRow{m, toMessage(target, m.ID)})
	}
	here := link{messagesPage, filter}
	if q.query.Get(afterField) != "" {
		view.First = here.String()
	}
	view.Long, view.Looked = q.query.Get(searchField) == searchLong, found.Looked
	switch next := here.with(afterField, string(found.Next)); {
	case found.Next == "":
	case len(found.Messages) == pageSize:
		view.Next = next.String()
	default:
		view.SearchOn = next.with(searchField, searchLong).String()
	}
	return view, nil
}

// searchField is the field of an address that says how long a page may look for messages. Without it, a page looks at a bounded number, so that it comes soon
// and costs the database little.
const (
	searchField = "search"
	searchLong  = "long"
)

// listed returns a page of the messages that the address chooses.
func (h *Handler) listed(ctx context.Context, q *request) (admin.Found, error) {
	after := admin.Cursor(q.query.Get(afterField))
	if admin.Status(q.query.Get("status")) == admin.Done {
		target, filter, err := q.doneFilter()
		if err != nil {
			return admin.Found{}, err
		}
		filter.After, filter.Limit = after, pageSize
		found, err := h.admin.Done(ctx, target, filter)
		if err != nil || len(found) < pageSize {
			return admin.Found{Messages: found}, err
		}
		return admin.Found{Messages: found, Next: found[pageSize-1].Cursor}, nil
	}
	filter, err := q.pendingFilter()
	if err != nil {
		return admin.Found{}, err
	}
	filter.After, filter.Limit = after, pageSize
	long, err := q.searchesLong()
	if err != nil {
		return admin.Found{}, err
	}
	if long {
		return h.search(ctx, filter, h.searchUntil())
	}
	return h.admin.Search(ctx, filter)
}

// searchesLong reads whether a page may look for long.
func (q *request) searchesLong() (bool, error) {
	switch long := q.query.Get(searchField); long {
	case "", searchLong:
		return long == searchLong, nil
	default:
		return false, badf("search: there is no choice %q", long)
	}
}

// searchUntil is when a page ends a long search: after half of the time that it has.
func (h *Handler) searchUntil() time.Time { return time.Now().Add(h.config.Timeout / 2) }

// search looks for messages until it has as many as the filter says, to the end of the list, or until a time.
func (h *Handler) search(ctx context.Context, filter admin.MessageFilter, until time.Time) (all admin.Found, err error) {
	for {
		found, err := h.admin.Search(ctx, filter)
		if err != nil {
			return admin.Found{}, err
		}
		all.Messages, all.Looked, all.Next = append(all.Messages, found.Messages...), all.Looked+found.Looked, found.Next
		if filter.Limit -= len(found.Messages); filter.Limit == 0 || all.Next == "" || time.Now().After(until) {
			return all, nil
		}
		filter.After = all.Next
	}
}

func toMessage(target admin.Target, id int64) link {
	return toTarget(messagePage, target, "id", idText(id))
}

func targetOptions(targets []admin.Target, chosen admin.Target) []option {
	var options []option
	for _, target := range targets {
		options = append(options, option{targetOption(target), kindOf(target) + " " + escaped(target.Name()), target == chosen})
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
	return onMessage(q, "due", func(target admin.Target, id int64) error { return h.admin.RunNow(ctx, target, id) })
}

func (h *Handler) reschedule(ctx context.Context, q *request) (link, error) {
	at, err := q.dueTime()
	if err != nil {
		return link{}, err
	}
	return onMessage(q, "rescheduled", func(target admin.Target, id int64) error { return h.admin.Reschedule(ctx, target, id, at) })
}

// bury leads to the list, since there is no page of the message any more.
func (h *Handler) bury(ctx context.Context, q *request) (link, error) {
	reason, err := q.reason()
	if err != nil {
		return link{}, err
	}
	_, err = onMessage(q, "", func(target admin.Target, id int64) error { return h.admin.Bury(ctx, target, id, reason) })
	if err != nil {
		return link{}, err
	}
	target, err := q.target()
	return toTarget(messagesPage, target, noticeField, "buried"), err
}

// onMessage does something to the message of the address, and leads to its page.
func onMessage(q *request, notice string, do func(target admin.Target, id int64) error) (link, error) {
	target, err := q.target()
	if err != nil {
		return link{}, err
	}
	id, err := q.id()
	if err != nil {
		return link{}, err
	}
	return toMessage(target, id).with(noticeField, notice), do(target, id)
}
