package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postbox-go/watermill-postbox/admin"
)

// keysView are the keys and topics of which messages are held up.
type keysView struct {
	Queues []keysOf
}

// keysOf are the keys of an outbox or a queue.
type keysOf struct {
	Target   admin.Target
	Stuck    []stuckKey
	More     bool // there are more stuck keys than are shown
	Paused   []pausedKey
	PauseKey link
	// Topics are paused; a queue has none.
	Topics     []pausedKey
	PauseTopic link
}

// stuckKey is a key of which nothing is handled now.
type stuckKey struct {
	admin.StuckKey
	Messages, HeadLink, RunNow link
	Waits                      string
}

// pausedKey is a key or a topic that an operator has paused.
type pausedKey struct {
	admin.Paused
	Messages, Resume link
}

// maxKeys is how many keys and topics of an outbox or a queue the page shows.
const maxKeys = 50

// keys shows those of which something is held up first, and asks only these for more.
func (h *Handler) keys(ctx context.Context, q *request) (any, error) {
	target, one := q.optionalTarget()
	chosen := []admin.QueueInfo{{Target: target}}
	if !one {
		now, err := h.samples.count(ctx)
		if err != nil {
			return nil, err
		}
		chosen = slices.SortedStableFunc(slices.Values(now.queues), func(a, b admin.QueueInfo) int { return min(held(b), 1) - min(held(a), 1) })
	}
	var view keysView
	for _, info := range chosen[:min(len(chosen), maxSampled)] {
		of := keysOf{
			Target: info.Target, PauseKey: toTarget("pause-key", info.Target), PauseTopic: toTarget("pause-topic", info.Target),
		}
		if one || held(info) > 0 {
			if err := errors.Join(h.addStuck(ctx, &of), h.addPaused(ctx, &of)); err != nil {
				return nil, err
			}
		}
		view.Queues = append(view.Queues, of)
	}
	return view, nil
}

// held is how many keys and topics are held up.
func held(info admin.QueueInfo) int { return info.StuckKeys + info.PausedKeys + info.PausedTopics }

func (h *Handler) addStuck(ctx context.Context, of *keysOf) error {
	stuck, err := h.admin.StuckKeys(ctx, admin.Filter{Target: of.Target, Limit: maxKeys + 1})
	if err != nil {
		return err
	}
	of.More = len(stuck) > maxKeys
	for _, key := range stuck[:min(len(stuck), maxKeys)] {
		waits := number(key.Behind)
		if key.MoreBehind {
			waits = "at least " + waits
		}
		of.Stuck = append(of.Stuck, stuckKey{
			StuckKey: key, Waits: waits, Messages: toTarget(messagesPage, of.Target, "key", key.Key),
			HeadLink: toMessage(of.Target, key.Head.ID), RunNow: actOn("run-now", of.Target, key.Head.ID),
		})
	}
	return nil
}

// addPaused adds the paused keys and topics.
func (h *Handler) addPaused(ctx context.Context, of *keysOf) error {
	paused, err := h.admin.Paused(ctx, of.Target)
	if err != nil {
		return err
	}
	for _, p := range paused {
		switch {
		case p.Key != "" && len(of.Paused) < maxKeys:
			of.Paused = append(of.Paused, pausedKey{
				p, toTarget(messagesPage, of.Target, "key", p.Key), toTarget("resume-key", of.Target, "key", p.Key),
			})
		case p.Topic != "" && len(of.Topics) < maxKeys:
			of.Topics = append(of.Topics, pausedKey{
				p, toTarget(messagesPage, of.Target, "topic", p.Topic), toTarget("resume-topic", of.Target, "topic", p.Topic),
			})
		}
	}
	return nil
}

// targets are the outboxes and queues that a user can choose among.
func (h *Handler) targets(ctx context.Context) ([]admin.Target, error) {
	targets, err := h.allTargets(ctx)
	return slices.DeleteFunc(targets, isInbox), err
}

// allTargets are these, and then the inboxes with a history. Nothing is counted for a list of
// names.
func (h *Handler) allTargets(ctx context.Context) ([]admin.Target, error) {
	targets, err := h.admin.Targets(ctx)
	queues, inboxes := targets, []admin.Target(nil)
	if i := slices.IndexFunc(targets, isInbox); i >= 0 {
		queues, inboxes = targets[:i], targets[i:]
	}
	return slices.Concat(queues[:min(len(queues), maxSampled)], inboxes[:min(len(inboxes), maxSampled)]), err
}

func isInbox(target admin.Target) bool { return target.Kind == inboxField }

// written reads the key or the topic that an action is about: from the address, or from the form in
// which a user wrote one.
func (q *request) written(field string) (string, error) {
	text := q.name(field)
	if text == "" {
		text = unescaped(q.PostFormValue(field))
	}
	if text == "" {
		return "", badf("the %s is empty: write one", field)
	}
	return text, nil
}

func (h *Handler) pauseKey(ctx context.Context, q *request) (link, error) {
	return onNamed(ctx, q, "key", "key-paused", h.pauseAs(q))
}

func (h *Handler) resumeKey(ctx context.Context, q *request) (link, error) {
	return onNamed(ctx, q, "key", "key-resumed", h.admin.Resume)
}

// pauseTopic asks first if the database knows no message of the topic: it may be a typing error.
func (h *Handler) pauseTopic(ctx context.Context, q *request) (link, error) {
	target, err := q.target()
	if err != nil {
		return link{}, err
	}
	topic, err := q.written("topic")
	if err != nil {
		return link{}, err
	}
	seen, err := h.admin.Seen(ctx, target, topic)
	if err == nil && !seen && q.PostFormValue("unseen") == "" { // an error is that of the pause, too
		return link{}, badf("no message of topic %s is pending, in the history or a dead letter, which may be a typing error: to pause it all the same, say so with the box below its name", short(topic))
	}
	return onNamed(ctx, q, "topic", "topic-paused", h.pauseAs(q))
}

func (h *Handler) resumeTopic(ctx context.Context, q *request) (link, error) {
	return onNamed(ctx, q, "topic", "topic-resumed", h.admin.Resume)
}

// onNamed does something to a key or a topic, and leads to the page of keys.
func onNamed(ctx context.Context, q *request, field, notice string, do func(context.Context, admin.Filter) error) (link, error) {
	target, err := q.target()
	if err != nil {
		return link{}, err
	}
	name, err := q.written(field)
	if err != nil {
		return link{}, err
	}
	filter := map[string]admin.Filter{"key": {Target: target, Key: name}, "topic": {Target: target, Topic: name}}[field]
	return toTarget(keysPage, target, noticeField, notice), do(ctx, filter)
}

// notThere is the error for an outbox or a queue that does not exist.
func notThere(target admin.Target) error {
	return fmt.Errorf("%w: there is no %s", admin.ErrNotFound, target)
}
