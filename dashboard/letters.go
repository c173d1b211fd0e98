package dashboard

import (
	"context"
	"net/url"
	"strconv"

	"github.com/postbox-go/watermill-postbox/admin"
)

// lettersView is a page of dead letters.
type lettersView struct {
	Filter      letterFields
	Resolutions []option
	Filtered    bool
	Rows        []letterRow
	First, Next string
	// Requeue asks whether all that match the filter shall be requeued.
	Requeue link
	CanAct  bool // on all: only letters that are not resolved
}

// letterRow is a dead letter in a list.
type letterRow struct {
	admin.DeadLetter
	Link link
}

// letterFields are the fields of the filter, in the notation.
type letterFields struct {
	Topic, Consumer, Message, After, Before string
}

// The values of the field that chooses by resolution.
const (
	unresolved = ""
	resolved   = "yes"
	anyLetter  = "any"
)

var resolutionTexts = []option{
	{Value: unresolved, Text: "not resolved"}, {Value: resolved, Text: "resolved"}, {Value: anyLetter, Text: "all"},
}

// filterFields are the fields of an address that choose dead letters.
var filterFields = []string{"topic", "consumer", "message", "died-after", "died-before", "resolved"}

// letterFilter reads the filter that an address has.
func (q *request) letterFilter() (filter admin.Filter, err error) {
	filter = admin.Filter{Topic: q.name("topic"), Consumer: q.name("consumer"), MessageID: q.name("message")}
	switch value := q.query.Get("resolved"); value {
	case unresolved:
	case resolved:
		filter.Resolved = admin.ResolvedYes
	case anyLetter:
		filter.Resolved = admin.ResolvedAny
	default:
		return filter, badf("resolved: there is no choice %q", value)
	}
	if filter.DiedAfter, err = moment("died after", q.query.Get("died-after")); err != nil {
		return filter, err
	}
	filter.DiedBefore, err = moment("died before", q.query.Get("died-before"))
	return filter, err
}

// filterQuery is the part of an address that chooses dead letters.
func (q *request) filterQuery() url.Values {
	chosen := url.Values{}
	for _, field := range filterFields {
		if value := q.query.Get(field); value != "" {
			chosen.Set(field, value)
		}
	}
	return chosen
}

func (h *Handler) letters(ctx context.Context, q *request) (any, error) {
	filter, err := q.letterFilter()
	if err != nil {
		return nil, err
	}
	filter.Limit = pageSize
	if after := q.query.Get("after"); after != "" {
		if filter.After, err = strconv.ParseInt(after, 10, 64); err != nil {
			return nil, badf("after: %q is not the id of a dead letter", after)
		}
	}
	found, err := h.admin.DeadLetters(ctx, filter)
	if err != nil {
		return nil, err
	}
	chosen := q.filterQuery()
	view := lettersView{
		Filter: letterFields{
			Topic: chosen.Get("topic"), Consumer: chosen.Get("consumer"), Message: chosen.Get("message"),
			After: chosen.Get("died-after"), Before: chosen.Get("died-before"),
		},
		Resolutions: choose(resolutionTexts, chosen.Get("resolved")), Filtered: len(chosen) > 0,
		CanAct: filter.Resolved == admin.ResolvedNo,
	}
	for _, letter := range found {
		view.Rows = append(view.Rows, letterRow{letter, toLetter(letter.ID)})
	}
	here := link{lettersPage, chosen}
	if filter.After > 0 {
		view.First = here.String()
	}
	if len(found) == pageSize {
		view.Next = here.with("after", idText(found[pageSize-1].ID)).String()
	}
	view.Requeue = link{bulkPage, chosen}.with("do", bulkRequeue)
	return view, nil
}

func toLetter(id int64) link { return to(letterPage, "id", idText(id)) }

// letterView is one dead letter.
type letterView struct {
	admin.DeadLetter
	Content content
	Failed  []failureView
	// LastError is the whole error of the last attempt.
	LastError string
	// From says whether FromName is a consumer, an outbox or a queue.
	From, FromName           string
	Requeue, Resolve, Delete link
	SameTopic                link
}

func (h *Handler) letter(ctx context.Context, q *request) (any, error) {
	id, err := q.id()
	if err != nil {
		return nil, err
	}
	letter, err := h.admin.DeadLetter(ctx, id)
	if err != nil {
		return nil, err
	}
	view := letterView{
		DeadLetter: *letter, Content: h.content(q.access, paramsOf(letter), letter.MessageID),
		Requeue: to("requeue", "id", idText(id)), Resolve: to("resolve", "id", idText(id)), Delete: to("delete", "id", idText(id)),
		SameTopic: to(lettersPage, "topic", letter.Topic, "consumer", letter.Consumer),
	}
	view.LastError, _ = cut(letter.Error, maxText)
	view.LastError = lines(view.LastError)
	view.Failed = failuresOf(letter.Failures)
	view.From, view.FromName = "Consumer", letter.Consumer
	if letter.Consumer == "" {
		target := admin.Outbox(letter.Outbox)
		view.From, view.FromName = kindOf(target), target.Name()
	}
	if view.Content.Download {
		view.Content.Whole = to("letter-payload", "id", idText(id))
	}
	view.Payload = nil // the page needs what is shown of it only
	return view, nil
}

func paramsOf(letter *admin.DeadLetter) PayloadParams {
	return PayloadParams{Target: admin.Outbox(letter.Outbox), Consumer: letter.Consumer, Topic: letter.Topic, Metadata: letter.Metadata, Payload: letter.Payload}
}

func (h *Handler) requeue(ctx context.Context, q *request) (link, error) {
	return onLetter(q, "requeued", func(id int64) error { return h.admin.Requeue(ctx, id) })
}

func (h *Handler) resolve(ctx context.Context, q *request) (link, error) {
	reason, err := q.reason()
	if err != nil {
		return link{}, err
	}
	return onLetter(q, "resolved", func(id int64) error { return h.admin.Resolve(ctx, id, reason) })
}

func (h *Handler) delete(ctx context.Context, q *request) (link, error) {
	return onLetter(q, "deleted", func(id int64) error { return h.admin.Delete(ctx, id) })
}

// onLetter does something to the dead letter of the address, and leads to the list.
func onLetter(q *request, notice string, do func(id int64) error) (link, error) {
	id, err := q.id()
	if err != nil {
		return link{}, err
	}
	return to(lettersPage, noticeField, notice), do(id)
}
