package dashboard

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin"
)

// The values of the field that says what is done to all dead letters that match a filter.
const (
	bulkRequeue = "requeue"
	bulkResolve = "resolve"
	bulkDelete  = "delete"
)

// toBulk is the address of the page that asks for a confirmation.
func toBulk(do string, chosen url.Values) link { return link{bulkPage, chosen}.with("do", do) }

// bulkKind is something that can be done to all dead letters that match a filter.
type bulkKind struct {
	Verb, Done string
	Warning    string
	NeedsWhy   bool
	run        func(ctx context.Context, order bulkOrder) (int, error)
}

// bulkOrder is what a user has confirmed.
type bulkOrder struct {
	filter   admin.Filter
	reason   string
	progress func(done int)
}

func (o bulkOrder) report(p admin.Progress) { o.progress(p.Done) }

func (h *Handler) bulkKinds() map[string]bulkKind {
	return map[string]bulkKind{
		bulkRequeue: {
			Verb: "Requeue", Done: "requeued", Warning: "Their messages are handled again, with all attempts.",
			run: func(ctx context.Context, order bulkOrder) (int, error) {
				return h.admin.RequeueAll(ctx, order.filter, order.report)
			},
		},
		bulkResolve: {
			Verb: "Resolve", Done: "resolved", Warning: "They are kept for their retention, and cannot be requeued.", NeedsWhy: true,
			run: func(ctx context.Context, order bulkOrder) (int, error) {
				return h.admin.ResolveAll(ctx, order.filter, order.reason, order.report)
			},
		},
		bulkDelete: {
			Verb: "Delete", Done: "deleted", Warning: "Their messages and payloads are deleted for good.",
			run: func(ctx context.Context, order bulkOrder) (int, error) {
				return h.admin.DeleteAll(ctx, order.filter, order.report)
			},
		},
	}
}

// bulkView asks for a confirmation.
type bulkView struct {
	bulkKind
	Conditions []fact
	// Matches is how many letters match, and More that there are more.
	Matches int
	More    bool
	Run     link
	Back    link
}

// confirmBulk shows what would be done, before it is done.
func (h *Handler) confirmBulk(ctx context.Context, q *request) (any, error) {
	kind, filter, err := h.bulkOf(q)
	if err != nil {
		return nil, err
	}
	filter.Limit = admin.MaxLimit
	found, err := h.admin.DeadLetters(ctx, filter)
	if err != nil {
		return nil, err
	}
	chosen := q.filterQuery()
	return bulkView{
		bulkKind: kind, Conditions: conditionsOf(chosen), Matches: len(found), More: len(found) == admin.MaxLimit,
		Run: link{"bulk-run", chosen}.with("do", q.query.Get("do")), Back: link{lettersPage, chosen},
	}, nil
}

func (h *Handler) bulkOf(q *request) (bulkKind, admin.Filter, error) {
	kind, exists := h.bulkKinds()[q.query.Get("do")]
	if !exists {
		return bulkKind{}, admin.Filter{}, badf("do: there is no such action on all dead letters")
	}
	filter, err := q.letterFilter()
	return kind, filter, err
}

const (
	// sayEvery is the pause between two lines about the progress.
	sayEvery = time.Second
	// quietFor is how long a browser may take to read such a line: longer than [http.Server.WriteTimeout] for the whole page.
	quietFor = 30 * time.Second
)

// runBulk carries out a bulk action, and sends lines about its progress to the browser. The action ends if the browser goes away. What it has done
// by then stays done, and the user can start it again for the rest.
func (h *Handler) runBulk(w http.ResponseWriter, q *request) {
	q.Body = http.MaxBytesReader(w, q.Body, maxForm)
	if err := q.ParseForm(); err != nil {
		h.failed(w, q, mistakeError{err})
		return
	}
	kind, filter, err := h.bulkOf(q)
	order := bulkOrder{filter: filter}
	if err == nil && kind.NeedsWhy {
		order.reason, err = q.reason()
	}
	if err != nil {
		h.failed(w, q, err)
		return
	}
	out := &progressPage{handler: h, w: w, q: q, kind: kind, back: link{lettersPage, q.filterQuery()}}
	out.begin()
	order.progress = out.say
	done, err := kind.run(q.Context(), order)
	h.samples.forget()
	out.end(done, err)
}

// progressPage is a page that is sent while an action runs.
type progressPage struct {
	handler *Handler
	w       http.ResponseWriter
	q       *request
	kind    bulkKind
	back    link
	said    time.Time
}

// progressView is a part of the page.
type progressView struct {
	bulkKind
	Back    link
	Count   int
	Problem string
	At      time.Time
}

func (p *progressPage) begin() {
	p.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.w.Header().Set("X-Accel-Buffering", "no") // nginx would keep the lines back
	p.send("progress-begin", progressView{bulkKind: p.kind})
	p.said = time.Now()
}

func (p *progressPage) say(done int) {
	if time.Since(p.said) < sayEvery {
		return
	}
	p.said = time.Now()
	p.send("progress-line", progressView{bulkKind: p.kind, Count: done, At: p.said})
}

func (p *progressPage) end(done int, err error) {
	view := progressView{bulkKind: p.kind, Back: p.back, Count: done}
	if err != nil {
		view.Problem, _ = cut(err.Error(), maxText)
	}
	p.send("progress-end", view)
}

// send sends a part of the page at once. A browser that has gone ends the context of the request, and with it the action.
func (p *progressPage) send(part string, view progressView) {
	var text bytes.Buffer
	if err := p.handler.templates["progress"].ExecuteTemplate(&text, part, p.handler.frame(p.q, "progress", view)); err != nil {
		p.handler.logger.Error("The dashboard could not make a page", err, watermill.LogFields{"page": part})
		return
	}
	control := http.NewResponseController(p.w)
	_ = control.SetWriteDeadline(time.Now().Add(quietFor)) // not every server has one
	_, _ = p.w.Write(text.Bytes())
	_ = control.Flush() // a server that cannot sends the page at its end
}
