package dashboard

import (
	"context"
	"fmt"
	"strings"

	"github.com/postbox-go/watermill-postbox/admin"
)

// overviewView is the first page: how far each outbox and queue has got, and what needs an
// operator.
type overviewView struct {
	Queues  []queueCard
	Inboxes []inboxCard
	Needs   []need
}

// queueCard is an outbox or a queue on the overview.
type queueCard struct {
	admin.QueueInfo
	Link, Messages, Letters, Keys link
	Kind                          string
	Chart                         chart
	// Change is by how much the backlog changes, and Handled is how many messages are handled, if a
	// history is kept.
	Change, Handled string
}

// need is something that does not go on by itself.
type need struct {
	Text   string
	Action string
	Link   link
}

func (h *Handler) overview(ctx context.Context, _ *request) (any, error) {
	now, err := h.samples.count(ctx)
	if err != nil {
		return nil, err
	}
	view := overviewView{Needs: append(needs(now.queues), needsOfInboxes(now.inboxes)...)}
	for _, q := range now.queues {
		view.Queues = append(view.Queues, cardOf(now, q))
	}
	for _, info := range now.inboxes {
		if info.HasHistory {
			view.Inboxes = append(view.Inboxes, inboxCardOf(info))
		}
	}
	return view, nil
}

func cardOf(now counted, q admin.QueueInfo) queueCard {
	card := queueCard{
		QueueInfo: q, Kind: kindOf(q.Target), Link: toTarget(queuePage, q.Target), Messages: toTarget(messagesPage, q.Target),
		Letters: toTarget(lettersPage, q.Target), Keys: toTarget(keysPage, q.Target), Chart: chartOf(now, q.Target),
	}
	if rate, known := now.rate(q.Target, q.Pending, func(c counts) int { return c.pending }); known {
		card.Change = fmt.Sprintf("%+.1f/s", rate)
	}
	if rate, known := now.rate(q.Target, q.Done, func(c counts) int { return c.done }); known && rate > 0 {
		card.Handled = fmt.Sprintf("%.1f/s", rate)
	}
	return card
}

func kindOf(target admin.Target) string {
	switch target.Kind {
	case inboxField:
		return "Inbox"
	case queueField:
		return "Queue"
	default:
		return "Outbox"
	}
}

// Outage says that messages wait for the end of an outage.
func (c queueCard) Outage() bool { return len(c.Outages) > 0 && isHeldUp(c.QueueInfo) }

// isHeldUp says that an outage matters: messages wait. Right after an outage the last heartbeats
// still tell of it, although its messages are through.
func isHeldUp(q admin.QueueInfo) bool { return q.Pending > 0 }

// outageText says what is away.
func outageText(target admin.Target, outage admin.Outage) string {
	what := "has a handler that reports an outage"
	if target.Kind != queueField {
		what = "cannot reach the broker for topic " + short(outage.Topic)
	}
	return fmt.Sprintf("%s since %s UTC. Its messages wait, and go on by themselves.", what, utc(outage.Since))
}

// needs lists what an operator should look at, with the page that helps.
func needs(queues []admin.QueueInfo) []need {
	var all []need
	for _, q := range queues {
		name := fmt.Sprintf("%s %s", kindOf(q.Target), escaped(q.Target.Name))
		add := func(is bool, text, action string, l link) {
			if is {
				all = append(all, need{name + " " + text, action, l})
			}
		}
		add(!q.PausedSince.IsZero(), fmt.Sprintf("has been paused since %s UTC.", utc(q.PausedSince)), "Resume it", toTarget(queuePage, q.Target))
		add(len(q.Work) > 1, fmt.Sprintf("is shared by processes that do different things with its messages: %s.", escaped(strings.Join(q.Work, "; "))), "See them", toTarget(processesPage, q.Target))
		for _, outage := range q.Outages {
			add(isHeldUp(q), outageText(q.Target, outage), "See it", toTarget(queuePage, q.Target))
		}
		if call := q.LongCall; call != nil && call.Hangs {
			add(true, fmt.Sprintf("may hang: a call in process %s has not returned since %s UTC.", short(call.Process), utc(call.Since)), "See its message", toMessage(q.Target, call.ID))
		}
		add(q.Processes == 0 && q.Pending > 0, fmt.Sprintf("has %s and no process that handles them.", amountOf(q.Pending, "message")),
			"See it", toTarget(queuePage, q.Target))
		add(q.Parked > 0, fmt.Sprintf("has %s that used up all attempts and %s.", amountOf(q.Parked, "message"), holdUp(q)),
			"See them", toTarget(messagesPage, q.Target, "status", string(admin.Parked)))
		add(q.StuckKeys > 0, fmt.Sprintf("has %s, the first for %s.", plural(q.StuckKeys, "stuck key"), span(q.StuckAge)), "See them", toTarget(keysPage, q.Target))
		add(q.PausedTopics > 0, fmt.Sprintf("has %s.", plural(q.PausedTopics, "paused topic")), "See them", toTarget(keysPage, q.Target))
		add(q.PausedKeys > 0, fmt.Sprintf("has %s.", plural(q.PausedKeys, "paused key")), "See them", toTarget(keysPage, q.Target))
		add(q.Dead > 0, fmt.Sprintf("has %s.", amountOf(q.Dead, "dead letter")), "See them", toTarget(lettersPage, q.Target))
	}
	return all
}

// holdUp says that parked messages hold up their keys.
func holdUp(q admin.QueueInfo) string {
	if q.Parked == 1 {
		return "holds up its key"
	}
	return "hold up their keys"
}

// needsOfInboxes lists the inboxes with dead letters. Those without a history have no card on the
// overview.
func needsOfInboxes(inboxes []admin.QueueInfo) []need {
	var all []need
	for _, info := range inboxes {
		if info.Dead > 0 {
			text := fmt.Sprintf("Inbox %s has %s.", escaped(info.Target.Name), amountOf(info.Dead, "dead letter"))
			all = append(all, need{text, "See them", to(lettersPage, "consumer", info.Target.Name)})
		}
	}
	return all
}
