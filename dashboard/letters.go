package dashboard

import (
	"context"
	"strconv"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// lettersView is a page of dead letters.
type lettersView struct {
	Filter      filterForm
	Filtered    bool
	Rows        []letterRow
	First, Next string
	// SearchOn, Looked and Long are those of [messagesView].
	SearchOn string
	Looked   int
	Long     bool
	Groups   link
	// Each of these asks for a confirmation first.
	Requeue, Resolve, Delete link
	// Open is true if only letters that are not resolved are chosen: others cannot be requeued or resolved.
	Open bool
}

// letterRow is a dead letter in a list.
type letterRow struct {
	admin.DeadLetter
	Link link
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
	found, err := h.lettersOf(ctx, q, filter)
	if err != nil {
		return nil, err
	}
	form, err := h.filterForm(ctx, q)
	if err != nil {
		return nil, err
	}
	chosen := q.chosenBy(filterFields)
	view := lettersView{
		Filter: form, Filtered: len(chosen) > 0, Open: filter.Resolved == "",
		Groups:  link{groupsPage, chosen},
		Requeue: toBulk(bulkRequeue, chosen), Resolve: toBulk(bulkResolve, chosen), Delete: toBulk(bulkDelete, chosen),
	}
	for _, letter := range found.DeadLetters {
		view.Rows = append(view.Rows, letterRow{letter, toLetter(letter.ID)})
	}
	here := link{lettersPage, chosen}
	if filter.After > 0 {
		view.First = here.String()
	}
	view.Long, view.Looked = q.query.Get(searchField) == searchLong, found.Looked
	switch next := here.with("after", idText(found.Next)); {
	case found.Next == 0:
	case len(found.DeadLetters) == pageSize:
		view.Next = next.String()
	default:
		view.SearchOn = next.with(searchField, searchLong).String()
	}
	return view, nil
}

// lettersOf returns a page of the dead letters that the filter chooses.
func (h *Handler) lettersOf(ctx context.Context, q *request, filter admin.Filter) (admin.FoundLetters, error) {
	long, err := q.searchesLong()
	if err != nil {
		return admin.FoundLetters{}, err
	}
	if long {
		return h.searchLetters(ctx, filter, h.searchUntil())
	}
	return h.admin.SearchDeadLetters(ctx, filter)
}

// searchLetters looks for dead letters until it has as many as the filter says, to the end of the list, or until a time.
func (h *Handler) searchLetters(ctx context.Context, filter admin.Filter, until time.Time) (all admin.FoundLetters, err error) {
	for {
		found, err := h.admin.SearchDeadLetters(ctx, filter)
		if err != nil {
			return admin.FoundLetters{}, err
		}
		all.DeadLetters, all.Looked, all.Next = append(all.DeadLetters, found.DeadLetters...), all.Looked+found.Looked, found.Next
		if filter.Limit -= len(found.DeadLetters); filter.Limit == 0 || all.Next == 0 || time.Now().After(until) {
			return all, nil
		}
		filter.After = all.Next
	}
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
	Edit, SameTopic          link
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
		Edit:      to("edit", "id", idText(id)),
		SameTopic: to(lettersPage, "topic", letter.Topic, "consumer", letter.Consumer),
	}
	view.LastError, _ = cut(letter.Error, maxText)
	view.LastError = saidLines(view.LastError)
	view.Failed = failuresOf(letter.Failures)
	view.From, view.FromName = "Consumer", letter.Consumer
	if letter.Consumer == "" {
		view.From, view.FromName = kindOf(letter.Target), letter.Target.Name()
	}
	if view.Content.Download {
		view.Content.Whole = to("letter-payload", "id", idText(id))
	}
	view.Payload = nil // the page needs what is shown of it only
	return view, nil
}

func paramsOf(letter *admin.DeadLetter) PayloadParams {
	return PayloadParams{Target: letter.Target, Consumer: letter.Consumer, Topic: letter.Topic, Metadata: letter.Metadata, Payload: letter.Payload}
}

func (h *Handler) requeue(ctx context.Context, q *request) (link, error) {
	return onLetter(q, "requeued", func(id int64) error { return h.admin.Requeue(ctx, id, q.again()) })
}

// again is what the user has said of messages of inboxes.
func (q *request) again() admin.Again {
	return admin.Again{Topic: q.PostFormValue("to-topic"), OlderThanClaims: q.PostFormValue("older-than-claims") != ""}
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
