package dashboard

import (
	"context"
	"slices"

	"github.com/postbox-go/watermill-postbox/admin"
)

// pageSize is the number of rows of a list.
const pageSize = 50

// option is one of a list in a form.
type option struct {
	Value, Text string
	Chosen      bool
}

// messagesView is a page of the messages of an outbox or a queue.
type messagesView struct {
	Targets, Statuses   []option
	Kind                string
	Target              admin.Target
	Queue               link
	Topic, Key, Message string // of the filter, in the notation
	Filtered            bool
	Rows                []messageRow
	Done                bool
	First, Next         string
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
	targets, err := h.targets(ctx)
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
	view := messagesView{
		Targets: targetOptions(targets, target), Statuses: choose(statusTexts, string(status)), Kind: kindOf(target), Target: target,
		Queue: toTarget(queuePage, target), Topic: q.query.Get("topic"), Key: q.query.Get("key"), Message: q.query.Get("message"),
		Done: status == admin.Done,
	}
	view.Filtered = view.Topic != "" || view.Key != "" || view.Message != "" || status != ""
	if !slices.ContainsFunc(statusTexts, func(o option) bool { return o.Value == string(status) }) {
		return nil, badf("status: there is no status %q", status)
	}
	found, err := h.listed(ctx, q, target, status)
	if err != nil {
		return nil, err
	}
	for _, m := range found {
		view.Rows = append(view.Rows, messageRow{m, toMessage(target, m.ID)})
	}
	here := link{messagesPage, q.query}
	if q.query.Get("after") != "" {
		view.First = here.with("after", "").String()
	}
	if len(found) == pageSize {
		view.Next = here.with("after", string(found[pageSize-1].Cursor)).String()
	}
	return view, nil
}

func (h *Handler) listed(ctx context.Context, q *request, target admin.Target, status admin.Status) ([]admin.Message, error) {
	after := admin.Cursor(q.query.Get("after"))
	topic, key, id := q.name("topic"), q.name("key"), q.name("message")
	if status == admin.Done {
		return h.admin.Done(ctx, target, admin.DoneFilter{Topic: topic, Key: key, MessageID: id, After: after, Limit: pageSize})
	}
	return h.admin.Messages(ctx, admin.MessageFilter{
		Target: target, Status: status, Topic: topic, Key: key, MessageID: id, After: after, Limit: pageSize,
	})
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
	at, err := moment("time", q.PostFormValue("at"))
	if err != nil {
		return link{}, err
	}
	if at.IsZero() {
		return link{}, badf("the time is missing: write when the message shall be handled, in UTC")
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
