package dashboard

import (
	"context"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// keysView are the keys of which messages are held up.
type keysView struct {
	Queues []keysOf
}

// keysOf are the keys of an outbox or a queue.
type keysOf struct {
	Kind     string
	Target   admin.Target
	Link     link
	Paused   []pausedKey
	PauseKey link
}

// pausedKey is a key that an operator has paused.
type pausedKey struct {
	Key              string
	Since            time.Time
	Messages, Resume link
}

// maxKeys is how many keys of an outbox or a queue the page shows.
const maxKeys = 50

func (h *Handler) keys(ctx context.Context, q *request) (any, error) {
	targets, err := h.chosenTargets(ctx, q)
	if err != nil {
		return nil, err
	}
	var view keysView
	for _, target := range targets {
		paused, err := h.admin.PausedKeys(ctx, target)
		if err != nil {
			return nil, err
		}
		of := keysOf{Kind: kindOf(target), Target: target, Link: toTarget(queuePage, target), PauseKey: toTarget("pause-key", target)}
		for _, key := range paused[:min(len(paused), maxKeys)] {
			of.Paused = append(of.Paused, pausedKey{
				Key: key.Key, Since: key.Since, Messages: toTarget(messagesPage, target, "key", key.Key), Resume: toTarget("resume-key", target, "key", key.Key),
			})
		}
		view.Queues = append(view.Queues, of)
	}
	return view, nil
}

// chosenTargets are the outbox or queue that the address names, or all.
func (h *Handler) chosenTargets(ctx context.Context, q *request) ([]admin.Target, error) {
	if target, ok := q.optionalTarget(); ok {
		return []admin.Target{target}, nil
	}
	return h.targets(ctx)
}

// targets are the outboxes and queues that a user can choose among.
func (h *Handler) targets(ctx context.Context) ([]admin.Target, error) {
	now, err := h.samples.count(ctx)
	if err != nil {
		return nil, err
	}
	targets := make([]admin.Target, 0, len(now.queues))
	for _, queue := range now.queues[:min(len(now.queues), maxSampled)] {
		targets = append(targets, queue.Target)
	}
	return targets, nil
}

// key reads the key that an action is about: from the address, or from the form in which a user wrote one.
func (q *request) key() (string, error) {
	key := q.name("key")
	if key == "" {
		key = unescaped(q.PostFormValue("key"))
	}
	if key == "" {
		return "", badf("the key is empty: write an ordering key")
	}
	return key, nil
}

func (h *Handler) pauseKey(ctx context.Context, q *request) (link, error) {
	return h.onKey(ctx, q, "key-paused", h.admin.PauseKey)
}

func (h *Handler) resumeKey(ctx context.Context, q *request) (link, error) {
	return h.onKey(ctx, q, "key-resumed", h.admin.ResumeKey)
}

func (h *Handler) onKey(ctx context.Context, q *request, notice string, do func(context.Context, admin.Target, string) error) (link, error) {
	target, err := q.target()
	if err != nil {
		return link{}, err
	}
	key, err := q.key()
	if err != nil {
		return link{}, err
	}
	return toTarget(keysPage, target, noticeField, notice), do(ctx, target, key)
}

// notThere is the error for an outbox or a queue that does not exist.
func notThere(target admin.Target) error {
	return fmt.Errorf("%w: there is no %s", admin.ErrNotFound, target)
}
