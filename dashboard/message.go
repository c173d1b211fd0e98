package dashboard

import (
	"context"
	"net/http"

	"github.com/postbox-go/watermill-postbox/admin"
)

// messageView is one message.
type messageView struct {
	admin.Message
	Target  admin.Target
	Kind    string
	Queue   link
	Content content
	Failed  []failureView
	Waits   []wait
	// The addresses of the actions. Whether they are possible depends on the status.
	RunNow, Reschedule, Bury, PauseKey, ResumeKey link
	KeyMessages                                   link
	KeyPaused                                     bool
}

func (h *Handler) message(ctx context.Context, q *request) (any, error) {
	target, err := q.target()
	if err != nil {
		return nil, err
	}
	id, err := q.id()
	if err != nil {
		return nil, err
	}
	m, err := h.admin.Message(ctx, target, id)
	if err != nil {
		return nil, err
	}
	view := messageView{
		Message: *m, Target: target, Kind: kindOf(target), Queue: toOverviewOf(target),
		RunNow: actOn("run-now", target, id), Reschedule: actOn("reschedule", target, id), Bury: actOn("bury", target, id),
		PauseKey: toTarget("pause-key", target, "key", m.Key), ResumeKey: toTarget("resume-key", target, "key", m.Key),
		KeyMessages: toTarget(messagesPage, target, "key", m.Key),
	}
	view.Failed = failuresOf(m.Failures)
	view.Content = h.content(q.access, PayloadParams{Target: target, Topic: m.Topic, Metadata: m.Metadata, Payload: m.Payload}, m.MessageID)
	if view.Content.Download {
		view.Content.Whole = actOn("message-payload", target, id)
	}
	if m.Status != admin.Done {
		err = h.waitsOf(ctx, &view)
	}
	view.Payload = nil // the page needs what is shown of it only
	return view, err
}

func actOn(page string, target admin.Target, id int64) link {
	return toTarget(page, target, "id", idText(id))
}

func kindWord(target admin.Target) string {
	if target.IsQueue() {
		return "queue"
	}
	return "outbox"
}

// messagePayload sends the whole payload as a file.
func (h *Handler) messagePayload(w http.ResponseWriter, q *request) {
	var payload []byte
	var name string
	err := h.within(q.Context(), func(ctx context.Context) error {
		target, err := q.target()
		if err != nil {
			return err
		}
		id, err := q.id()
		if err != nil {
			return err
		}
		m, err := h.admin.Message(ctx, target, id)
		if err != nil {
			return err
		}
		if h.hides(PayloadParams{Target: target, Topic: m.Topic, Metadata: m.Metadata, Payload: m.Payload, Access: q.access}) {
			return errHidden
		}
		payload, name = m.Payload, "message-"+idText(id)
		return nil
	})
	h.sendFile(w, q, payload, name, err)
}

// letterPayload sends the whole payload of a dead letter as a file.
func (h *Handler) letterPayload(w http.ResponseWriter, q *request) {
	var payload []byte
	var name string
	err := h.within(q.Context(), func(ctx context.Context) error {
		id, err := q.id()
		if err != nil {
			return err
		}
		letter, err := h.admin.DeadLetter(ctx, id)
		if err != nil {
			return err
		}
		params := paramsOf(letter)
		params.Access = q.access
		if h.hides(params) {
			return errHidden
		}
		payload, name = letter.Payload, "dead-letter-"+idText(id)
		return nil
	})
	h.sendFile(w, q, payload, name, err)
}

var errHidden = badf("the payload is shown formatted only")

// sendFile sends bytes that no browser shows as a page.
func (h *Handler) sendFile(w http.ResponseWriter, q *request, content []byte, name string, err error) {
	if err != nil {
		h.failed(w, q, err)
		return
	}
	h.answered()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`.bin"`)
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	if q.Method != http.MethodHead {
		_, _ = w.Write(content) // the browser has gone
	}
}
