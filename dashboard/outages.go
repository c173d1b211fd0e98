package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

const (
	// maxOutages is how many outages of an outbox or a queue are shown with their errors.
	maxOutages = 10
	// maxTried is among how many failed messages of a topic the error of its outage is looked for.
	maxTried = 20
)

// triedAgain says when an outage is over.
const triedAgain = "It is tried again by itself, after pauses of up to ProbeMax: 30 s by default."

// outageView is an outage with the error of a message that met it.
type outageView struct {
	admin.Outage
	// Error is that of Message, at the time At; it is empty if no message of the topic has failed
	// yet.
	Error   string
	At      time.Time
	ID      int64
	Message link
	// Messages are those that wait for the end of the outage, and TryNow lets that message try.
	Messages link
	TryNow   *link
}

// said is the error in a sentence, with a blank before it.
func (o outageView) said() string {
	if o.Error == "" {
		return ""
	}
	return " Message " + idText(o.ID) + " failed first at " + utc(o.At) + " UTC: " + saidShort(o.Error) + "."
}

// outages are those of an outbox or a queue.
func (h *Handler) outages(ctx context.Context, info admin.QueueInfo) ([]outageView, error) {
	views := make([]outageView, 0, len(info.Outages))
	for i, outage := range info.Outages {
		view := outageView{Outage: outage, Messages: toTarget(messagesPage, info.Target, "topic", outage.Topic)}
		if i < maxOutages {
			var err error
			if view, err = h.outageOf(ctx, info.Target, outage); err != nil {
				return nil, err
			}
		}
		views = append(views, view)
	}
	return views, nil
}

// clocksDiffer is how much earlier than its outage an error may have happened: the database has the
// time of the error, and a process that of the outage.
const clocksDiffer = time.Minute

// outageOf finds the error of an outage. It reads one message with its payload, so it chooses a
// small one, and rather one whose attempt was not counted.
func (h *Handler) outageOf(ctx context.Context, target admin.Target, outage admin.Outage) (outageView, error) {
	view := outageView{Outage: outage, Messages: toTarget(messagesPage, target, "topic", outage.Topic)}
	tried, _, err := h.admin.Messages(ctx, admin.Filter{Target: target, Topic: outage.Topic, Status: admin.Retrying, Limit: maxTried})
	if err != nil || len(tried) == 0 {
		return view, err
	}
	chosen := slices.MinFunc(tried, func(a, b admin.Message) int {
		return cmp.Or(cmp.Compare(a.Attempts, b.Attempts), cmp.Compare(a.Size, b.Size))
	})
	m, err := h.admin.Message(ctx, admin.Filter{Target: target, ID: chosen.ID})
	if errors.Is(err, admin.ErrNotFound) { // it has got through meanwhile
		return view, nil
	}
	if err != nil || len(m.Failures) == 0 {
		return view, err
	}
	last := m.Failures[len(m.Failures)-1]
	if last.At.Before(outage.Since.Add(-clocksDiffer)) {
		return view, nil // of something else
	}
	try := actOn("run-now", target, m.ID)
	view.Error, view.At, view.ID, view.Message, view.TryNow = last.Error, last.At, m.ID, toMessage(target, m.ID), &try
	return view, nil
}
