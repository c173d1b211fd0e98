package dashboard

import (
	"context"
	"errors"

	"github.com/postbox-go/watermill-postbox/admin"
)

// lettersView is a page of dead letters.
type lettersView struct {
	paging

	Filter   filterForm
	Filtered bool
	Rows     []admin.DeadLetter
	Groups   link
	Oldest   bool // the list begins with the oldest letter
	Other    link // leads to the other order
	// Each of these asks for a confirmation first.
	Requeue, Resolve, Delete link
	// Open is true if only letters that are not resolved are chosen: others cannot be requeued or
	// resolved.
	Open bool
}

func (h *Handler) letters(ctx context.Context, q *request) (any, error) {
	filter, err := q.letterFilter()
	if err != nil {
		return nil, err
	}
	order := q.query.Get(orderField)
	oldest := order == "oldest"
	if !oldest && order != "" {
		return nil, badf("order: there is no choice %q", order)
	}
	filter.After, filter.NewestFirst = q.query.Get(afterField), !oldest
	found, err := lookFor(ctx, h, q, filter, h.admin.DeadLetters)
	if err != nil {
		return nil, err
	}
	form, err := h.filterForm(ctx, q)
	if err != nil {
		return nil, err
	}
	chosen := q.chosenBy(filterFields)
	view := lettersView{
		Filter: form, Filtered: len(chosen) > 0, Open: filter.Resolved == "", Oldest: oldest,
		Groups:  link{groupsPage, chosen},
		Requeue: toBulk(bulkRequeue, chosen), Resolve: toBulk(bulkResolve, chosen), Delete: toBulk(bulkDelete, chosen),
	}
	here := link{lettersPage, chosen}
	other := here.with(orderField, "oldest")
	if oldest {
		here, other = other, here
	}
	view.Rows, view.Other, view.paging = found.Rows, other, pagingOf(q, here, afterField, found)
	return view, nil
}

// orderField is the field of an address that turns a list round.
const orderField = "order"

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
	Edit, SameTopic, Ask     link
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
	chosen := to("", "message", letter.MessageID, "consumer", letter.Consumer, "key", letter.Key)
	if letter.Consumer == "" {
		view.From, view.FromName = kindOf(letter.Target), letter.Target.Name
		chosen.query.Set(letter.Target.Kind, escaped(letter.Target.Name))
	}
	view.Ask = toBulk(bulkRequeue, chosen.query)
	if view.Content.Download {
		view.Content.Whole = to("letter-payload", "id", idText(id))
	}
	view.Payload = nil // the page needs what is shown of it only
	return view, nil
}

func paramsOf(letter *admin.DeadLetter) PayloadParams {
	return PayloadParams{Target: letter.Target, Consumer: letter.Consumer, Topic: letter.Topic, Metadata: letter.Metadata, Payload: letter.Payload}
}

// behind says after how many messages of its key a letter comes if it is requeued, and nothing if
// no one waits, or if it cannot be requeued.
func (h *Handler) behind(ctx context.Context, id int64) (string, error) {
	keys, err := h.admin.StuckKeys(ctx, admin.Filter{ID: id})
	if errors.Is(err, admin.ErrNotFound) {
		err = nil
	}
	if err != nil || len(keys) == 0 {
		return "", err
	}
	text := plural(1+keys[0].Behind, "message") + " of its key"
	if keys[0].MoreBehind {
		text = "at least " + text
	}
	return text, nil
}

func (h *Handler) requeue(ctx context.Context, q *request) (link, error) {
	return onLetter(q, "requeued", func(one admin.Filter) (int, error) { return h.admin.Requeue(ctx, one, q.again()) })
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
	return onLetter(q, "resolved", func(one admin.Filter) (int, error) { return h.admin.Resolve(ctx, one, reason) })
}

func (h *Handler) delete(ctx context.Context, q *request) (link, error) {
	return onLetter(q, "deleted", func(one admin.Filter) (int, error) { return h.admin.Delete(ctx, one) })
}

// onLetter does something to the dead letter of the address, and leads to the list.
func onLetter(q *request, notice string, do func(one admin.Filter) (int, error)) (link, error) {
	id, err := q.id()
	if err != nil {
		return link{}, err
	}
	_, err = do(admin.Filter{ID: id})
	return to(lettersPage, noticeField, notice), err
}
