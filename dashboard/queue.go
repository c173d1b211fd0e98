package dashboard

import (
	"context"
	"maps"
	"slices"
	"strings"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
)

// queueView is one outbox or queue.
type queueView struct {
	queueCard
	Settings      []fact
	InForce       []fact // limits
	ProcessesLink link
	Away          []outageView
	Needs         []need
	Activity      activity
	// Do are the addresses of the actions.
	PauseIt, Resume, Set link
}

// fact is a name with a value.
type fact struct{ Name, Value string }

func (h *Handler) queue(ctx context.Context, q *request) (any, error) {
	target, now, err := h.countFor(ctx, q)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(now.queues, func(info admin.QueueInfo) bool { return info.Target == target })
	if i < 0 {
		return nil, notThere(target)
	}
	view := queueView{
		queueCard: cardOf(now, now.queues[i]), Settings: settingsOf(now.queues[i].Settings), InForce: limitsOf(now.queues[i]), ProcessesLink: toTarget(processesPage, target),
		PauseIt: toTarget("pause", target), Resume: toTarget("resume", target), Set: toTarget(settingsPage, target),
	}
	view.Needs = needs(now.queues[i : i+1])
	if view.Activity, err = h.activityOf(ctx, q, target); err != nil {
		return nil, err
	}
	view.Away, err = h.outages(ctx, now.queues[i])
	return view, err
}

// settingsOf lists the settings that operators have stored.
func settingsOf(s admin.Settings) []fact {
	var facts []fact
	add := func(stored bool, name, value string) {
		if stored {
			facts = append(facts, fact{name, value})
		}
	}
	add(s.PageSize != 0, "Messages read at once", number(s.PageSize))
	add(s.Concurrency != 0, "Handlers at a time in each process", number(s.Concurrency))
	add(s.PollMax != 0, "Longest pause between polls", span(s.PollMax))
	add(s.Attempts != 0, "Attempts", attempts(s.Attempts))
	add(s.PerSecond != 0, "Messages a second, in all processes", kept(s.PerSecond > 0, rateFact(s.PerSecond), "no limit"))
	add(s.MaxConcurrent != 0, "Handlers at a time, in all processes", kept(s.MaxConcurrent > 0, number(s.MaxConcurrent), "no limit"))
	add(s.History != 0, "Handled messages are kept for", kept(s.History > 0, span(s.History), "no time"))
	add(s.Retention != 0, "Dead letters are kept for", kept(s.Retention > 0, span(s.Retention), "ever"))
	return facts
}

// limitsOf lists the limits, with where they come from: in total, then of topics by name.
func limitsOf(info admin.QueueInfo) []fact {
	var facts []fact
	add := func(of string, l postbox.Limit, stored admin.Settings) {
		for _, part := range []struct {
			name, value string
			is, stored  bool
		}{
			{"Messages a second", rateFact(l.PerSecond), l.PerSecond != 0, stored.PerSecond != 0},
			{"Handlers at a time", number(l.MaxConcurrent), l.MaxConcurrent != 0, stored.MaxConcurrent != 0},
		} {
			if part.is || part.stored {
				facts = append(facts, fact{part.name + of, kept(part.is, part.value, "no limit") + kept(part.stored, " (set by an operator)", " (configured)")})
			}
		}
	}
	add("", info.Limits.Total, info.Settings)
	for _, topic := range slices.Sorted(maps.Keys(info.Limits.Topics)) {
		add(", topic "+short(topic), info.Limits.Topics[topic], admin.Settings{})
	}
	return facts
}

func kept(bounded bool, span, otherwise string) string {
	if bounded {
		return span
	}
	return otherwise
}

func (h *Handler) pause(ctx context.Context, q *request) (link, error) {
	target, err := q.target()
	if err != nil {
		return link{}, err
	}
	return toTarget(queuePage, target, noticeField, "paused"), h.pauseAs(q)(ctx, admin.Filter{Target: target, All: true})
}

// pauseAs pauses with the reason and the end that the form has.
func (h *Handler) pauseAs(q *request) func(ctx context.Context, filter admin.Filter) error {
	return func(ctx context.Context, filter admin.Filter) (err error) {
		if filter.Until, err = moment("until", q.PostFormValue("until")); err != nil {
			return err
		}
		return h.admin.Pause(ctx, filter, strings.TrimSpace(q.PostFormValue("reason")))
	}
}

func (h *Handler) resume(ctx context.Context, q *request) (link, error) {
	target, err := q.target()
	if err != nil {
		return link{}, err
	}
	return toTarget(queuePage, target, noticeField, "resumed"), h.admin.Resume(ctx, admin.Filter{Target: target, All: true})
}
