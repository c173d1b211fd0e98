package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
)

const (
	// sayEvery is the pause between two lines about the progress.
	sayEvery = time.Second
	// quietFor is how long a browser may take to read such a line, or a whole page.
	quietFor = 30 * time.Second
)

// progressView is a part of a page that is sent while an action runs.
type progressView struct {
	*bulkRun

	// GoOn is where the user goes on with an action that does not know by itself what is done.
	GoOn link
	// Unknown is true for a replay of whose last part it is not known whether it was done.
	Unknown bool
	// Rest are the groups of the dead letters that are left.
	Rest    any
	Problem string
	At      time.Time
}

// progress is the page of an action that runs, for a browser that has closed it.
func (h *Handler) progress(w http.ResponseWriter, q *request) {
	id, err := q.id()
	runs := h.bulks.all(id)
	if err == nil && len(runs) == 0 {
		err = fmt.Errorf("%w: the action has ended, or runs in another process: the audit log says how far it is", admin.ErrNotFound)
	}
	if err != nil {
		h.failed(w, q, err)
		return
	}
	h.follow(w, q, runs[0])
}

// follow says how far the action is until it ends.
func (h *Handler) follow(w http.ResponseWriter, q *request, run *bulkRun) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // [http.Server.ReadTimeout] would end the page, although all is read
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep the lines back
	_ = h.send(w, q, "progress-begin", progressView{bulkRun: run})
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	for {
		select {
		case at := <-tick.C:
			if h.send(w, q, "progress-line", progressView{bulkRun: run, At: at}) != nil {
				return // the browser has gone
			}
		case <-run.ended:
			view := progressView{bulkRun: run, GoOn: run.goOn}
			if run.far.Store(int64(run.done)); run.err != nil {
				view.Problem, _ = cut(run.err.Error(), maxText)
				view.Unknown = run.Replays && errors.Is(run.err, postbox.ErrCommitUnknown)
			} else if run.of.list == lettersPage {
				all := *q
				all.query = nil
				var rest any // still written if the browser has gone
				if h.within(q.Context(), func(ctx context.Context) (err error) {
					rest, err = h.groups(ctx, &all)
					return err
				}) == nil {
					view.Rest = rest
				}
			}
			_ = h.send(w, q, "progress-end", view)
			return
		}
	}
}

// send sends a part of the page at once.
func (h *Handler) send(w http.ResponseWriter, q *request, part string, view progressView) error {
	var text bytes.Buffer
	if err := h.templates["progress"].ExecuteTemplate(&text, part, h.frame(q, "progress", view)); err != nil {
		h.logger.Error("The dashboard could not make a page", err, watermill.LogFields{"page": part})
		return err
	}
	until(w, quietFor)
	_, err := w.Write(text.Bytes())
	_ = http.NewResponseController(w).Flush() // a server that cannot sends the page at its end
	return err
}

// until is when a browser must have read what is sent to it.
func until(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d)) // not every server has one
}
