package dashboard

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
)

const (
	// sayEvery is the pause between two lines about the progress.
	sayEvery = time.Second
	// quietFor is how long a browser may take to read such a line, or a whole page.
	quietFor = 30 * time.Second
)

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
	Back link
	// GoOn is where the user goes on with an action that does not know by itself what is done.
	GoOn link
	// Unknown is true for a replay of whose last part it is not known whether it was done.
	Unknown bool
	Count   int
	Problem string
	At      time.Time
}

func (p *progressPage) begin() {
	_ = http.NewResponseController(p.w).SetReadDeadline(time.Time{}) // [http.Server.ReadTimeout] would end the action, although all is read
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

func (p *progressPage) end(done int, goOn link, err error) {
	view := progressView{bulkKind: p.kind, Back: p.back, Count: done, GoOn: goOn}
	if err != nil {
		view.Problem, _ = cut(err.Error(), maxText)
		view.Unknown = p.kind.Replays && errors.Is(err, postbox.ErrCommitUnknown)
	}
	p.send("progress-end", view)
}

// send sends a part of the page at once. A browser that has gone ends the context of the request,
// and with it the action.
func (p *progressPage) send(part string, view progressView) {
	var text bytes.Buffer
	if err := p.handler.templates["progress"].ExecuteTemplate(&text, part, p.handler.frame(p.q, "progress", view)); err != nil {
		p.handler.logger.Error("The dashboard could not make a page", err, watermill.LogFields{"page": part})
		return
	}
	until(p.w, quietFor)
	_, _ = p.w.Write(text.Bytes())
	_ = http.NewResponseController(p.w).Flush() // a server that cannot sends the page at its end
}

// until is when a browser must have read what is sent to it.
func until(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d)) // not every server has one
}
