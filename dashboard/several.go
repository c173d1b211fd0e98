package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// Board is the dashboard of one of several databases.
type Board struct {
	// Name stands in addresses and on pages: letters, digits, dots, dashes and underscores.
	Name    string
	Handler *Handler
}

var boardName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Several returns a handler for the dashboards of several databases. Its first page has a line for
// each of them and their sum, and each has its pages below its name. A user sees the databases that
// their own authorisers let him read. The first page waits for a database as long as that one's
// Timeout, and a database that does not answer is a line that says so. Like a [Handler] it works
// under any prefix. The boards must not be served by themselves from then on: their pages lead to
// the first one.
func Several(boards ...Board) (http.Handler, error) {
	if len(boards) == 0 {
		return nil, errors.New("dashboard: there is no Board")
	}
	s := &several{boards: slices.Clone(boards), handlers: map[string]http.Handler{}}
	for _, board := range boards {
		_, isFile := staticFiles[board.Name]
		switch {
		case board.Handler == nil:
			return nil, errors.New("dashboard: a Board has no Handler: make one with dashboard.New")
		case !boardName.MatchString(board.Name):
			return nil, fmt.Errorf("dashboard: the name %.70q of a Board has other characters than letters, digits, dots, dashes and underscores, or is too long", board.Name)
		case s.handlers[board.Name] != nil || isFile:
			return nil, fmt.Errorf("dashboard: two Boards are named %q, or a file of the dashboard is", board.Name)
		}
		board.Handler.oneOf = board.Name
		s.handlers[board.Name] = http.StripPrefix("/"+board.Name, board.Handler)
	}
	first := boards[0].Handler
	s.front = &Handler{config: first.config, origin: first.origin, templates: first.templates, refusals: first.refusals, logger: first.logger, front: true}
	return s, nil
}

type several struct {
	boards   []Board
	front    *Handler // makes the first page, and asks no database
	handlers map[string]http.Handler
}

// ServeHTTP serves the first page, or lets a board answer.
func (s *several) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, page, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if below {
		if board, exists := s.handlers[name]; exists {
			board.ServeHTTP(w, r)
			return
		}
	}
	if file, ok := staticFiles[name]; ok && !below {
		setHeaders(w.Header())
		s.front.serveStatic(w, r, file)
		return
	}
	setHeaders(w.Header())
	q := &request{Request: r, query: r.URL.Query()}
	may, known := s.permitted(q)
	switch {
	case errors.Join(s.front.origin.Check(r), checkVisit(r.Header)) != nil:
		s.front.refuse(w, q, errOtherSite, "The request comes from a page of another site.")
	case len(may) == 0:
		s.front.refuse(w, q, errNoRight, "You are not allowed to use this dashboard.")
	case name != "" || page != "":
		s.front.fail(w, q, problem{Status: http.StatusNotFound, Title: "There is no such page", Text: "The address of a database ends with a slash."})
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", readMethods)
		s.front.fail(w, q, problem{Status: http.StatusMethodNotAllowed, Title: "This address takes no such request", Text: "Use the buttons of the dashboard."})
	default:
		q.access = known
		until(w, s.patience()+quietFor)
		s.front.render(w, q, http.StatusOK, "several", look(r.Context(), may))
	}
}

// permitted returns the boards that the user may read, and what he may do on the first of them.
func (s *several) permitted(q *request) (may []Board, known Access) {
	for _, board := range s.boards {
		access, err := board.Handler.config.Authorise(q.Request)
		if err != nil || !access.allows(toRead) {
			continue
		}
		if len(may) == 0 {
			known = Access{Actor: access.Actor, Read: true, Act: access.Act && !board.Handler.config.ReadOnly}
		}
		may = append(may, board)
	}
	return may, known
}

func (s *several) patience() time.Duration {
	var longest time.Duration
	for _, board := range s.boards {
		longest = max(longest, board.Handler.config.Timeout)
	}
	return longest
}

// severalView is the first page.
type severalView struct {
	Databases []databaseLine
	Sum       databaseLine
}

// databaseLine is what one database has, or all of them.
type databaseLine struct {
	admin.QueueInfo // the sums

	Name, Problem string
	Needs         []need
	Answered      int
}

// look asks all databases at the same time.
func look(ctx context.Context, boards []Board) *severalView {
	view := &severalView{Databases: make([]databaseLine, len(boards))}
	var asked sync.WaitGroup
	for n, board := range boards {
		asked.Go(func() { view.Databases[n] = board.line(ctx) })
	}
	asked.Wait()
	for _, line := range view.Databases {
		view.Sum.add(line.QueueInfo)
		view.Sum.Answered += line.Answered
	}
	return view
}

func (b Board) line(ctx context.Context) databaseLine {
	var now counted
	err := b.Handler.within(ctx, func(ctx context.Context) (err error) {
		now, err = b.Handler.samples.count(ctx)
		return err
	})
	if err != nil {
		text, _ := cut(err.Error(), maxText)
		return databaseLine{Name: b.Name, Problem: text}
	}
	line := databaseLine{Name: b.Name, Answered: 1, Needs: needs(slices.Concat(now.queues, now.inboxes))}
	for _, q := range slices.Concat(now.queues, now.inboxes) {
		line.add(q)
	}
	return line
}

func (l *databaseLine) add(other admin.QueueInfo) {
	l.Pending += other.Pending
	l.Due += other.Due
	l.Failing += other.Failing
	if other.Pending > 0 {
		l.Outages = append(l.Outages, other.Outages...)
	}
	l.Parked += other.Parked
	l.StuckKeys += other.StuckKeys
	l.Dead += other.Dead
	l.DueAge = max(l.DueAge, other.DueAge)
}

// Silent is how many databases do not answer.
func (v *severalView) Silent() int { return len(v.Databases) - v.Sum.Answered }

// Well says that all databases answer, and none needs anything.
func (v *severalView) Well() bool {
	return v.Silent() == 0 && !slices.ContainsFunc(v.Databases, func(l databaseLine) bool { return len(l.Needs) > 0 })
}
