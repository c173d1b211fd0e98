package dashboard

import (
	"context"
	"fmt"
	"slices"

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
}

// need is something that does not go on by itself, with the page and the command that help.
type need struct {
	admin.Need
	Text, Action, Command string
	Link                  link
	TryNow                *link // whether an outage is over
}

func (h *Handler) overview(ctx context.Context, _ *request) (any, error) {
	now, err := h.samples.count(ctx)
	if err != nil {
		return nil, err
	}
	view := overviewView{Needs: needs(slices.Concat(now.queues, now.inboxes))}
	for i, n := range view.Needs[:min(len(view.Needs), maxOutages)] {
		if n.Trouble != "outages" {
			continue
		}
		first := slices.MinFunc(n.Outages, func(a, b admin.Outage) int { return a.Since.Compare(b.Since) })
		outage, err := h.outageOf(ctx, n.Target, first)
		if err != nil {
			return nil, err
		}
		view.Needs[i].Text += outage.said()
		view.Needs[i].TryNow = outage.TryNow
	}
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
	return queueCard{
		QueueInfo: q, Kind: kindOf(q.Target), Link: toTarget(queuePage, q.Target), Messages: toTarget(messagesPage, q.Target),
		Letters: toTarget(lettersPage, q.Target), Keys: toTarget(keysPage, q.Target), Chart: chartOf(now, q.Target),
	}
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

// needs lists what an operator should look at, the most urgent first, with the page that helps.
func needs(queues []admin.QueueInfo) []need {
	all := make([]need, 0, len(queues))
	for _, n := range admin.Needs(queues) {
		one := need{n, visible(fmt.Sprintf("%s %s %s", kindOf(n.Target), n.Target.Name, n.Text)), "See them", commandLine(n.Command...), toTarget(keysPage, n.Target), nil}
		switch n.Trouble {
		case "processes", "outages", "late":
			one.Action, one.Link = "See it", toTarget(queuePage, n.Target)
		case "services":
			one.Link = toTarget(processesPage, n.Target)
		case "calls":
			one.Action, one.Link = "See its message", toMessage(n.Target, n.LongCall.ID)
		case "parked":
			one.Link = toTarget(messagesPage, n.Target, "status", string(admin.Parked))
		case "paused":
			one.Action, one.Link = "Resume it", toTarget(queuePage, n.Target)
		case "letters":
			one.Link = link{groupsPage, lettersOf(n.Target).query}
		}
		all = append(all, one)
	}
	return all
}

// lettersOf is the list of the dead letters of an outbox, a queue or an inbox.
func lettersOf(target admin.Target) link {
	if target.Kind == inboxField {
		return to(lettersPage, "consumer", target.Name)
	}
	return toTarget(lettersPage, target)
}
