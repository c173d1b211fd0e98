package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/postbox-go/watermill-postbox/admin"
)

// The pages, by the last element of their address.
const (
	overviewPage  = "overview"
	queuePage     = "queue"
	inboxPage     = "inbox"
	settingsPage  = "settings"
	messagesPage  = "messages"
	messagePage   = "message"
	lettersPage   = "letters"
	groupsPage    = "groups"
	letterPage    = "letter"
	bulkPage      = "bulk"
	progressPage  = "bulk-progress"
	keysPage      = "keys"
	processesPage = "processes"
	auditPage     = "audit"
	findPage      = "find"
)

const readMethods = "GET, HEAD"

// route is what an address leads to.
type route struct {
	needs right
	// changes is true for an action, which only a POST carries out.
	changes bool
	// fields are those that its address may have, beside those of every address: see
	// [request.checkFields]. A bulk action checks its own.
	fields       []string
	checksItself bool
	serve        func(w http.ResponseWriter, q *request)
}

func (r route) accepts(method string) bool {
	if r.changes {
		return method == http.MethodPost
	}
	return method == http.MethodGet || method == http.MethodHead
}

func (r route) methods() string {
	if r.changes {
		return http.MethodPost
	}
	return readMethods
}

// table has all that the dashboard can do, and the right that each needs.
func (h *Handler) table() map[string]route {
	const id, key, topic = "id", "key", "topic"
	return map[string]route{
		overviewPage:  h.page("overview", h.overview),
		queuePage:     h.page("queue", h.queue).with(spanField),
		inboxPage:     h.page("inbox", h.inbox),
		messagesPage:  h.page("messages", h.messages).with(messageFields...).with(afterField, searchField),
		messagePage:   h.page("message", h.message).with(id),
		lettersPage:   h.page("letters", h.letters).with(filterFields...).with(afterField, searchField, orderField),
		groupsPage:    h.page("groups", h.groups).with(filterFields...),
		letterPage:    h.page("letter", h.letter).with(id),
		keysPage:      h.page("keys", h.keys),
		processesPage: h.page("processes", h.processes),
		auditPage:     h.page("audit", h.audit).with(auditFields...).with("before", searchField),

		findPage: h.page("find", h.find).with(findField),

		"message-payload": route{serve: h.messagePayload}.with(id),
		"letter-payload":  route{serve: h.letterPayload}.with(id),

		"pause":        h.action(h.pause),
		"resume":       h.action(h.resume),
		"pause-key":    h.action(h.pauseKey).with(key),
		"resume-key":   h.action(h.resumeKey).with(key),
		"pause-topic":  h.action(h.pauseTopic).with(topic),
		"resume-topic": h.action(h.resumeTopic).with(topic),
		"run-now":      h.action(h.runNow).with(id),
		"reschedule":   h.action(h.reschedule).with(id),
		"bury":         h.action(h.bury).with(id),
		"requeue":      h.action(h.requeue).with(id),
		"resolve":      h.action(h.resolve).with(id),
		"delete":       h.action(h.delete).with(id),

		"edit":     route{needs: toEdit, serve: h.page("edit", h.edit).serve}.with(id),
		"edit-run": h.change(toEdit, maxEditForm, h.editAndRequeue).with(id),

		settingsPage:   {needs: toAct, serve: h.page("settings", h.settings).serve},
		"settings-run": h.action(h.storeSettings),

		bulkPage:    {needs: toAct, checksItself: true, serve: h.page("bulk", h.confirmBulk).serve},
		"bulk-run":  {needs: toAct, checksItself: true, changes: true, serve: h.runBulk},
		"bulk-stop": h.action(h.stopBulk).with(id),

		progressPage: route{needs: toAct, serve: h.progress}.with(id),
	}
}

// with adds fields that the address of the route may have.
func (r route) with(fields ...string) route {
	r.fields = slices.Concat(r.fields, fields)
	return r
}

// page is a route that shows a template with what load has read. A load must not change anything.
func (h *Handler) page(template string, load func(ctx context.Context, q *request) (any, error)) route {
	return route{serve: func(w http.ResponseWriter, q *request) {
		var view any
		err := h.within(q.Context(), func(ctx context.Context) (err error) {
			view, err = load(ctx, q)
			return err
		})
		if err != nil {
			h.failed(w, q, err)
			return
		}
		h.answered()
		h.render(w, q, http.StatusOK, template, view)
	}}
}

// maxForm bounds what a form may send, except an edited payload.
const maxForm = 64 << 10

// action is a change that needs the right to act.
func (h *Handler) action(do func(ctx context.Context, q *request) (link, error)) route {
	return h.change(toAct, maxForm, do)
}

// change is a route that changes something, and then sends the browser to a page that shows it. So
// a reload does not do it again.
func (h *Handler) change(needs right, most int64, do func(ctx context.Context, q *request) (link, error)) route {
	return route{needs: needs, changes: true, serve: func(w http.ResponseWriter, q *request) {
		q.Body = http.MaxBytesReader(w, q.Body, most)
		if err := q.ParseForm(); err != nil {
			h.failed(w, q, mistakeError{err})
			return
		}
		var next link
		err := h.within(q.Context(), func(ctx context.Context) (err error) {
			next, err = do(ctx, q)
			return err
		})
		h.samples.forget() // what the next page shows is after the action
		if err != nil {
			h.failed(w, q, err)
			return
		}
		h.answered()
		// Not http.Redirect, which would make the address absolute, and so lose the prefix.
		w.Header().Set("Location", next.String())
		w.WriteHeader(http.StatusSeeOther)
	}}
}

// problemOf says what an error means for a user.
func problemOf(err error) problem {
	var bad mistakeError
	switch {
	case errors.As(err, &bad), errors.Is(err, admin.ErrInvalid):
		return problem{Status: http.StatusBadRequest, Title: "This request has a mistake", Text: err.Error()}
	case errors.Is(err, admin.ErrNotFound):
		return problem{Status: http.StatusNotFound, Title: "It is not there", Text: "It may have been handled, requeued or deleted meanwhile. " + err.Error()}
	case errors.Is(err, errOthersChanged), errors.Is(err, admin.ErrRefused):
		return problem{Status: http.StatusConflict, Title: "This cannot be done now", Text: err.Error()}
	default:
		return problem{Status: http.StatusServiceUnavailable, Title: "The database does not answer", Text: err.Error()}
	}
}
