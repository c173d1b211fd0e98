package dashboard

import (
	"context"

	"github.com/postbox-go/watermill-postbox/admin"
)

// replayForm asks what becomes of messages of the history.
type replayForm struct {
	To    []option // the outbox or queue itself, and the outboxes
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
	form := replayForm{To: targetOptions([]admin.Target{target}, target), After: q.query.Get(afterField)}
	for _, other := range targets {
		if !other.IsQueue() && other != target {
			form.To = append(form.To, targetOptions([]admin.Target{other}, target)...)
		}
	}
	return form, nil
}

// replayOrder reads the form.
func (h *Handler) replayOrder(q *request) (bulkOrder, error) {
	target, filter, err := q.doneFilter()
	if err != nil {
		return nil, err
	}
	params := admin.ReplayParams{
		Topic: unescaped(q.PostFormValue("to-topic")), NewIDs: q.PostFormValue("new-ids") != "", After: admin.Cursor(q.PostFormValue(afterField)),
	}
	if text := q.PostFormValue("to"); text != "" {
		to, chosen := readTargetOption(text)
		if !chosen {
			return nil, badf("to: there is no outbox and no queue %q", text)
		}
		if to != target {
			params.To = to
		}
	}
	return func(ctx context.Context, progress func(int)) (int, admin.Cursor, error) {
		did, err := h.admin.Replay(ctx, target, filter, params, func(p admin.ReplayProgress) { progress(p.Done) })
		return did.Done, did.Cursor, err
	}, nil
}
