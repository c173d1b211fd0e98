package dashboard

import (
	"context"
	"errors"

	"github.com/postbox-go/watermill-postbox/admin"
)

// replayForm asks what becomes of messages of the history.
type replayForm struct {
	To    []option // the outbox or queue itself, and the outboxes; for an inbox, also the queues
	After string
}

func (h *Handler) replayForm(ctx context.Context, q *request) (replayForm, error) {
	target, err := q.target()
	if err != nil {
		return replayForm{}, err
	}
	targets, err := h.targets(ctx)
	if err != nil {
		return replayForm{}, err
	}
	form := replayForm{After: q.query.Get(afterField)}
	if target.Kind != inboxField {
		form.To = targetOptions([]admin.Target{target}, target)
	}
	for _, other := range targets {
		if other != target && (other.Kind != queueField || target.Kind == inboxField) {
			form.To = append(form.To, targetOptions([]admin.Target{other}, target)...)
		}
	}
	return form, nil
}

// replayOrder reads the form.
func (h *Handler) replayOrder(q *request) (bulkOrder, error) {
	filter, err := q.doneFilter()
	if err == nil {
		filter, err = q.counted(filter)
	}
	if err != nil {
		return nil, err
	}
	filter.All, filter.After = true, q.PostFormValue(afterField) // the page has said what would be replayed
	again := admin.Again{Topic: unescaped(q.PostFormValue("to-topic")), NewIDs: q.PostFormValue("new-ids") != ""}
	if text := q.PostFormValue("to"); text != "" {
		to, chosen := readTargetOption(text)
		if !chosen {
			return nil, badf("to: there is no outbox and no queue %q", text)
		}
		if to != filter.Target {
			again.To = to
		}
	}
	try := again
	try.DryRun = true
	err = h.within(q.Context(), func(ctx context.Context) error { _, err := h.admin.Replay(ctx, filter, try); return err })
	if errors.Is(err, admin.ErrNotFound) && errors.Is(err, admin.ErrInvalid) {
		err = badf("to: there is no %s: choose one from the list", again.To)
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, progress func(int)) (int, string, error) {
		did, err := h.admin.Replay(ctx, filter, again, func(p admin.Progress) { progress(p.Done) })
		return did.Done, did.Cursor, err
	}, nil
}
