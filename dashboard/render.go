package dashboard

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin"
)

//go:embed pages
var pages embed.FS

// templates are the pages, each together with the layout.
type templates map[string]*template.Template

func parseTemplates() (templates, error) {
	layout, err := template.New("layout").Funcs(template.FuncMap{
		"escaped": visible, "short": short, "said": said, "saidShort": saidShort, "saidLines": saidLines, "utc": utc, "when": when, "span": span, "number": number, "bytes": byteSize, "plural": plural, "amount": amount, "pausedAt": pausedAt, "nav": navOf, "filter": filterOf,
		"kind": kindOf, "page": func(of admin.Target) link { return toOverviewOf(of) },
		"find":     func(text string) link { return to(findPage, findField, text) },
		"letterAt": toLetter, "messageAt": toMessage,
		"toLetter": func(id string) link { return to(letterPage, "id", id) },
		"word":     func(name string) string { return shellWord(unescaped(name)) },
		"flag": func(chosen string) string {
			t, _ := readTargetOption(chosen)
			return "--" + t.Kind + " " + shellWord(t.Name)
		},
	}).ParseFS(pages, "pages/layout.html", "pages/parts.html")
	if err != nil {
		return nil, err
	}
	files, err := pages.ReadDir("pages")
	if err != nil {
		return nil, err
	}
	all := templates{}
	for _, file := range files {
		page, err := layout.Clone()
		if err != nil {
			return nil, err
		}
		if _, err = page.ParseFS(pages, path.Join("pages", file.Name())); err != nil {
			return nil, err
		}
		all[strings.TrimSuffix(file.Name(), ".html")] = page
	}
	return all, nil
}

// navItem is a link to one of the pages.
type navItem struct {
	Href, Text string
	Current    bool
}

func navOf(section, page, href, text string) navItem {
	return navItem{href, text, section == page}
}

// filterPart is the form that chooses dead letters, and the page that it leads to.
type filterPart struct {
	Action string
	Form   filterForm
}

func filterOf(action string, form filterForm) filterPart { return filterPart{action, form} }

// sectionOf is the page of the navigation that a page belongs to.
func sectionOf(page string, view any) string {
	if of, knows := view.(interface{ section() string }); knows {
		return of.section()
	}
	switch page {
	case queuePage, inboxPage, settingsPage:
		return overviewPage
	case messagePage:
		return messagesPage
	case letterPage, groupsPage, "edit":
		return lettersPage
	default:
		return page
	}
}

// frame is what the layout shows around each page.
type frame struct {
	Title   string
	Section string // the page of the navigation that it belongs to
	// OneOf is the name of the database if the dashboard has several.
	OneOf   string
	Several bool // the page is about all of them
	Access  Access
	Edits   bool
	Acts    bool
	Refresh int // milliseconds
	Now     time.Time
	Notice  string
	Find    string // what the user looks for
	View    any
}

func (h *Handler) frame(q *request, page string, view any) frame {
	return frame{
		Title: h.config.Title, Section: sectionOf(page, view), Access: q.access, Acts: q.access.allows(toAct), Edits: q.access.allows(toEdit),
		OneOf: h.oneOf, Several: h.front,
		Refresh: int(h.config.Refresh.Milliseconds()), Now: time.Now().UTC(), Notice: notices[q.query.Get(noticeField)], Find: q.query.Get(findField), View: view,
	}
}

// render sends a page. It is made in memory first, so that no half page is sent.
func (h *Handler) render(w http.ResponseWriter, q *request, status int, page string, view any) {
	var body bytes.Buffer
	if err := h.templates[page].ExecuteTemplate(&body, "layout.html", h.frame(q, page, view)); err != nil {
		h.logger.Error("The dashboard could not make a page", err, watermill.LogFields{"page": page})
		http.Error(w, "The page could not be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if q.Method != http.MethodHead {
		_, _ = w.Write(body.Bytes()) // the browser has gone
	}
}

// problem is what a page says if it cannot show what it was asked for.
type problem struct {
	Status      int
	Title, Text string
	// Action is true for the answer to an action. Such a page does not load itself again: its
	// address takes no such request.
	Action bool
	// Begun is true for an action that may have been done, or not.
	Begun bool
	// Back is the page about the thing that the action changes.
	Back     link
	BackName string
}

func (h *Handler) fail(w http.ResponseWriter, q *request, p problem) {
	if q.Method == http.MethodPost {
		p.Action = true
		p.Back, p.BackName = q.changed()
	}
	h.render(w, q, p.Status, "problem", p)
}

// failed answers a request that ended with an error.
func (h *Handler) failed(w http.ResponseWriter, q *request, err error) {
	p := problemOf(err)
	if p.Status == http.StatusServiceUnavailable && q.Context().Err() == nil && !errors.Is(err, context.Canceled) {
		if first := !h.away.Swap(true); first {
			h.logger.Error("The database does not answer the dashboard", err, nil)
		} else {
			h.logger.Debug("The database does not answer the dashboard", watermill.LogFields{"error": err.Error()})
		}
	}
	if q.Method == http.MethodPost && p.Status == http.StatusServiceUnavailable {
		var notBegun notBegunError
		p.Begun = !errors.As(err, &notBegun) && !errors.Is(err, errBusy)
		p.Title = "The action was not done"
		if p.Begun {
			p.Title = "It is not known whether the action was done"
		}
	}
	p.Text, _ = cut(p.Text, maxText)
	h.fail(w, q, p)
}

// notBegunError is an error of an action that has changed nothing so far.
type notBegunError struct{ error }

// Unwrap returns the wrapped error.
func (e notBegunError) Unwrap() error { return e.error }

// answered notes that the database has answered.
func (h *Handler) answered() {
	if h.away.Swap(false) {
		h.logger.Info("The database answers the dashboard again", nil)
	}
}

// noticeField is the field of an address that chooses one of the notices. An address cannot bring
// its own text.
const noticeField = "done"

// areNotices reports whether an action could have written these values of [noticeField].
func areNotices(values []string) bool {
	return !slices.ContainsFunc(values, func(value string) bool { return notices[value] == "" })
}

var notices = map[string]string{
	"paused":        "Paused. Processes notice within a second.",
	"set":           "The settings are stored. Processes notice within a second.",
	"resumed":       "Resumed. Processes notice within a second.",
	"key-paused":    "The key is paused. Processes notice within a second.",
	"key-resumed":   "The key is resumed.",
	"topic-paused":  "The topic is paused. Processes notice within a second.",
	"topic-resumed": "The topic is resumed.",
	"due":           "The message is due now.",
	"rescheduled":   "The message has another time.",
	"buried":        "The message is a dead letter now.",
	"requeued":      "The dead letter is requeued: its message is handled again.",
	"edited":        "The dead letter is edited: a changed copy of its message is handled.",
	"resolved":      "The dead letter is resolved.",
	"deleted":       "The dead letter is deleted.",
}
