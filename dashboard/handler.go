package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/refusal"
)

// atATime is how many pages ask the database at a time, so that many open pages neither fill its
// pool nor this process's memory with payloads.
const atATime = 8

// Handler serves the dashboard. It is safe for concurrent use. Close ends its bulk actions.
//
// It serves paths such as "/messages", and all its links are relative. So it works under any prefix
// that ends with a slash, if [net/http.StripPrefix] takes the prefix away. Several processes can
// serve it behind a load balancer that keeps a user at one of them: the chart, the rates, and the
// progress and the end of bulk actions are those of a process.
type Handler struct {
	admin     *admin.Admin
	config    Config
	origin    *http.CrossOriginProtection
	templates templates
	routes    map[string]route
	samples   *samples
	slots     chan struct{}
	files     chan struct{} // payloads that are sent as a file
	away      atomic.Bool   // the last page had no answer from the database
	refusals  *refusal.Log
	oneOf     string // its name among several databases: see [Several]
	front     bool   // it makes the page about all of them
	bulks     background
	logger    watermill.LoggerAdapter
}

// New returns the dashboard of the database that the Admin works on. It does not contact the
// database. The logger gets a line for each refused request, at most 20 in a minute, and one when
// the database stops answering; a nil logger logs nothing.
func New(operator *admin.Admin, config Config, logger watermill.LoggerAdapter) (*Handler, error) {
	if operator == nil {
		return nil, errors.New("dashboard: the Admin is nil: make one with admin.New")
	}
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("dashboard: invalid config: %w", err)
	}
	config.setDefaults()
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	parsed, err := parseTemplates()
	if err != nil {
		return nil, fmt.Errorf("dashboard: read the templates: %w", err)
	}
	h := &Handler{
		admin: operator, config: config, origin: http.NewCrossOriginProtection(), templates: parsed,
		samples: &samples{admin: operator, lock: make(chan struct{}, 1)}, slots: make(chan struct{}, atATime), files: make(chan struct{}, filesAtATime), refusals: refusal.New(logger), logger: logger, bulks: background{runs: map[int64]*bulkRun{}},
	}
	h.routes = h.table()
	return h, nil
}

// ServeHTTP answers a request for a page, or carries out an action.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	until(w, h.config.Timeout+quietFor)
	name := cmp.Or(strings.TrimPrefix(r.URL.Path, "/"), overviewPage)
	if file, ok := staticFiles[name]; ok {
		h.serveStatic(w, r, file) // the same for everyone: it says nothing of the database
		return
	}
	q := &request{Request: r, query: r.URL.Query()}
	if !h.permits(w, q, name) { //nolint:contextcheck // the context is that of the request
		return
	}
	found := h.routes[name]
	if err := errors.Join(q.checkTarget(), q.checkFields(found)); err != nil {
		h.failed(w, q, err)
		return
	}
	found.serve(w, q)
}

// permits decides about a request, once for all routes. If it refuses the request it answers it.
func (h *Handler) permits(w http.ResponseWriter, q *request, name string) bool {
	if err := errors.Join(h.origin.Check(q.Request), checkVisit(q.Header)); err != nil {
		h.refuse(w, q, err, "The request comes from a page of another site.")
		return false
	}
	access, err := h.config.Authorise(q.Request)
	if err != nil {
		h.refuse(w, q, err, "You are not allowed to use this dashboard.")
		return false
	}
	if h.config.ReadOnly {
		access.Act, access.Edit = false, false
	}
	q.access = access
	if !access.allows(toRead) {
		h.refuse(w, q, errNoRight, "You are not allowed to use this dashboard.")
		return false
	}
	found, exists := h.routes[name]
	if !exists {
		h.fail(w, q, problem{Status: http.StatusNotFound, Title: "There is no such page", Text: "The address of the overview ends with a slash."})
		return false
	}
	if access.Actor != "" {
		q.Request = q.WithContext(admin.ContextWithActor(q.Context(), access.Actor))
	}
	if !access.allows(found.needs) {
		reason := errNoRight
		if h.config.ReadOnly {
			reason = errReadOnly
		}
		h.refuse(w, q, reason, "You may look at this dashboard, and not do this.")
		return false
	}
	if !found.accepts(q.Method) {
		w.Header().Set("Allow", found.methods())
		h.fail(w, q, problem{Status: http.StatusMethodNotAllowed, Title: "This address takes no such request", Text: "Use the buttons of the dashboard."})
		return false
	}
	return true
}

var (
	errNoRight  = errors.New("the authoriser does not allow it")
	errReadOnly = errors.New("the dashboard is read-only")
)

// refuse answers a request that is not allowed. The reason is for the log: it may say more than a
// stranger should know.
func (h *Handler) refuse(w http.ResponseWriter, q *request, reason error, text string) {
	h.refusals.Refused(q.Request, q.access.Actor, reason)
	if errors.Is(reason, errNotLocal) {
		text = "Here only requests from the same machine are answered, without a proxy between."
	}
	h.fail(w, q, problem{Status: http.StatusForbidden, Title: "Not allowed", Text: text})
}

// within runs what asks the database, and returns when the time is over, even if the driver does
// not. So it is a goroutine of its own.
func (h *Handler) within(ctx context.Context, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.config.Timeout)
	defer cancel()
	select {
	case h.slots <- struct{}{}:
	case <-ctx.Done():
		return errBusy
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-h.slots }()
		done <- recovered(ctx, ask)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errNoAnswer
	}
}

var (
	errBusy     = errors.New("all pages that may ask the database at a time wait for it")
	errNoAnswer = errors.New("the database did not answer in time")
)

// recovered turns a panic into an error: net/http cannot recover it in a goroutine that is not its
// own.
func recovered(ctx context.Context, ask func(ctx context.Context) error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	return ask(ctx)
}
