package dashboard

import (
	"context"
	"net/http"
	"strings"
	"time"

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
	m, err := h.admin.Message(ctx, admin.Filter{Target: target, ID: id})
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

// messagePayload sends the whole payload as a file.
func (h *Handler) messagePayload(w http.ResponseWriter, q *request) {
	h.sendFile(w, q, func(ctx context.Context, id int64) (payload []byte, target admin.Target, name string, err error) {
		if target, err = q.target(); err != nil {
			return nil, target, "", err
		}
		m, err := h.admin.Message(ctx, admin.Filter{Target: target, ID: id})
		if err != nil {
			return nil, target, "", err
		}
		if h.hides(PayloadParams{Target: target, Topic: m.Topic, Metadata: m.Metadata, Payload: m.Payload, Access: q.access}) {
			return nil, target, "", errHidden
		}
		return m.Payload, target, "message", nil
	})
}

// letterPayload sends the whole payload of a dead letter as a file.
func (h *Handler) letterPayload(w http.ResponseWriter, q *request) {
	h.sendFile(w, q, func(ctx context.Context, id int64) ([]byte, admin.Target, string, error) {
		letter, err := h.admin.DeadLetter(ctx, id)
		if err != nil {
			return nil, admin.Target{}, "", err
		}
		params := paramsOf(letter)
		params.Access = q.access
		if h.hides(params) {
			return nil, admin.Target{}, "", errHidden
		}
		return letter.Payload, letter.Target, "dead letter", nil
	})
}

var errHidden = badf("the payload is shown formatted only")

const (
	// filesAtATime bounds the payloads in memory, of up to 16 MiB each, until browsers have read
	// them.
	filesAtATime = 4
	// fileFor is how long a browser may take to read one.
	fileFor = 2 * time.Minute
)

// sendFile sends a payload, which no browser shows as a page, and records who got it.
func (h *Handler) sendFile(w http.ResponseWriter, q *request, read func(ctx context.Context, id int64) (payload []byte, of admin.Target, name string, err error)) {
	patience := time.NewTimer(h.config.Timeout)
	defer patience.Stop()
	select {
	case h.files <- struct{}{}:
		defer func() { <-h.files }()
	case <-patience.C:
		h.failed(w, q, errBusy)
		return
	case <-q.Context().Done():
		return
	}
	var payload []byte
	var name string
	err := h.within(q.Context(), func(ctx context.Context) error {
		id, err := q.id()
		if err != nil {
			return err
		}
		content, target, what, err := read(ctx, id)
		if err != nil {
			return err
		}
		if err := h.admin.RecordDownload(ctx, target, what+" "+idText(id)); err != nil {
			return err
		}
		payload, name = content, strings.ReplaceAll(what, " ", "-")+"-"+idText(id)
		return nil
	})
	if err != nil {
		h.failed(w, q, err)
		return
	}
	h.answered()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`.bin"`)
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	if q.Method != http.MethodHead {
		until(w, fileFor)
		_, _ = w.Write(payload) // the browser has gone
	}
}
