package dashboard

import (
	"context"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// wait is something that a message waits for, with the page that helps, if there is one.
type wait struct {
	Text string
	Link link
	Name string
}

// waiting collects what a message waits for.
type waiting struct {
	*messageView

	queue admin.QueueInfo
	now   time.Time
}

func (w *waiting) add(text, name string, l link) { w.Waits = append(w.Waits, wait{text, l, name}) }

// waitsOf finds what holds a pending message up.
func (h *Handler) waitsOf(ctx context.Context, view *messageView) error {
	counted, err := h.samples.count(ctx)
	if err != nil {
		return err
	}
	w := &waiting{messageView: view, now: time.Now()}
	if i := slices.IndexFunc(counted.queues, func(info admin.QueueInfo) bool { return info.Target == view.Target }); i >= 0 {
		w.queue = counted.queues[i]
		w.addQueue()
	}
	w.addOwn()
	if err := h.waitsForPauses(ctx, w); err != nil {
		return err
	}
	heads, err := h.waitsForKey(ctx, w)
	if err != nil {
		return err
	}
	if err := h.waitsForCalls(ctx, w, heads); err != nil {
		return err
	}
	return h.waitsForOutages(ctx, w, heads)
}

// addQueue adds what holds up all messages of the outbox or queue.
func (w *waiting) addQueue() {
	if !w.queue.Pause.Since.IsZero() {
		w.add("An operator paused the "+w.Target.Kind+" at "+pausedAt(w.queue.Pause)+".", "Resume it", w.Queue)
	}
	if w.queue.Processes == 0 {
		w.add("No process handles the "+w.Target.Kind+".", "See it", w.Queue)
	}
}

// addOwn adds what the message waits for by itself.
func (w *waiting) addOwn() {
	switch {
	case w.Status == admin.Parked:
		text := "It has used up its attempts, and waits for an operator. “Run now” gives it all its attempts again. “Bury” makes it a dead letter"
		if w.Key != "" {
			text += ", and its key goes on"
		}
		w.add(text+".", "", link{})
	case w.Status == admin.Retrying && w.DueAt.After(w.now):
		w.add("It failed, and waits for its next attempt at "+utc(w.DueAt)+" UTC.", "", link{})
	case w.Status == admin.Scheduled && w.DueAt.After(w.now):
		w.add("Its producer or an operator asked for a later time: "+utc(w.DueAt)+" UTC.", "", link{})
	}
}

// pausedAt says since when and until when it is paused, by whom and why.
func pausedAt(p admin.Paused) string {
	text := utc(p.Since) + " UTC"
	if !p.Until.IsZero() {
		text += ", until " + utc(p.Until) + " UTC"
	}
	if p.By != "" {
		text += ", by " + p.By
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	return saidShort(text)
}

// waitsForPauses finds pauses of its topic and of its key.
func (h *Handler) waitsForPauses(ctx context.Context, w *waiting) error {
	paused, err := h.admin.Paused(ctx, w.Target)
	for _, p := range paused {
		switch {
		case p.Topic != "" && p.Topic == w.Topic:
			w.add("An operator paused its topic at "+pausedAt(p)+".", "See paused topics", toTarget(keysPage, w.Target))
		case p.Key != "" && p.Key == w.Key:
			w.KeyPaused = true
			w.add("An operator paused its key at "+pausedAt(p)+".", "See paused keys", toTarget(keysPage, w.Target))
		}
	}
	return err
}

// waitsForKey finds earlier messages of its key that failed. It returns the first messages of the
// key, of each status, that are earlier than this one.
func (h *Handler) waitsForKey(ctx context.Context, w *waiting) (heads []admin.Message, err error) {
	if w.Key == "" {
		return nil, nil
	}
	statuses := []admin.Status{admin.Retrying, admin.Parked}
	if w.queue.LongCall != nil || len(w.queue.Outages) > 0 {
		statuses = append(statuses, admin.Ready) // the first one may be in the call, or go to the topic of the outage
	}
	for _, status := range statuses {
		first, _, err := h.admin.Messages(ctx, admin.Filter{Target: w.Target, Key: w.Key, Status: status, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(first) == 0 || first[0].ID >= w.ID {
			continue
		}
		heads = append(heads, first[0])
		if text := w.behind(first[0]); text != "" {
			w.add(text, "See message "+idText(first[0].ID), toMessage(w.Target, first[0].ID))
		}
	}
	return heads, nil
}

// behind says that an earlier message of the key failed; it is empty if that has not.
func (w *waiting) behind(head admin.Message) string {
	switch {
	case head.Status == admin.Parked:
		return "An earlier message of its key has used up its attempts and waits for an operator."
	case head.Status != admin.Retrying:
		return ""
	case head.DueAt.After(w.now):
		return "An earlier message of its key failed and waits for its next attempt at " + utc(head.DueAt) + " UTC."
	default:
		return "An earlier message of its key failed. Its next attempt has been due since " + utc(head.DueAt) + " UTC."
	}
}

// waitsForCalls finds calls with this message, or with an earlier one of its key, that have not
// returned for some seconds.
func (h *Handler) waitsForCalls(ctx context.Context, w *waiting, heads []admin.Message) error {
	if w.queue.LongCall == nil {
		return nil
	}
	_, members, err := h.admin.Lanes(ctx, w.Target)
	if err != nil {
		return err
	}
	for _, m := range members {
		call := m.LongCall
		if call == nil {
			continue
		}
		who, l := "It is", toTarget(processesPage, w.Target)
		name := "See the process"
		if call.ID != w.ID {
			if !slices.ContainsFunc(heads, func(head admin.Message) bool { return head.ID == call.ID }) {
				continue
			}
			who, name, l = "An earlier message of its key is", "See message "+idText(call.ID), toMessage(w.Target, call.ID)
		}
		text := who + " in a call of process " + short(call.Process) + " that has not returned since " + utc(call.Since) + " UTC."
		if call.Hangs {
			text += " The call may hang."
		}
		w.add(text, name, l)
	}
	return nil
}

// waitsForOutages finds outages of its topic, and of that of an earlier message of its key.
func (h *Handler) waitsForOutages(ctx context.Context, w *waiting, heads []admin.Message) error {
	for _, outage := range w.queue.Outages {
		of := "its topic"
		if outage.Topic != w.Topic {
			if !slices.ContainsFunc(heads, func(head admin.Message) bool { return head.Topic == outage.Topic }) {
				continue
			}
			of = "topic " + short(outage.Topic) + ", to which an earlier message of its key goes"
		}
		known, err := h.outageOf(ctx, w.Target, outage)
		if err != nil {
			return err
		}
		text := "The broker is away for " + of
		if w.Target.Kind == queueField {
			text = "The handler of its queue reports an outage"
		}
		w.add(text+" since "+utc(outage.Since)+" UTC."+known.said()+" "+triedAgain, "See the outage", toTarget(queuePage, w.Target))
	}
	return nil
}
