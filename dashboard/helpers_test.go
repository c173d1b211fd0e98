package dashboard_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// bench is a dashboard on a database with messages.
type bench struct {
	*dashboardtest.Shop

	board  *dashboard.Handler
	prefix string
	host   string
	remote string
}

func newBench(t *testing.T, database *testdb.Database, config dashboard.Config) *bench {
	t.Helper()
	b := &bench{Shop: dashboardtest.New(t, database), prefix: "/", host: "localhost:8080", remote: "127.0.0.1:50000"}
	b.restart(config)
	return b
}

// restart makes the dashboard again, as a restart of its process would.
func (b *bench) restart(config dashboard.Config) {
	b.Helper()
	if config.Authorise == nil {
		config.Authorise = dashboard.LoopbackOnly
	}
	board, err := dashboard.New(b.Admin, config, nil)
	require.NoError(b, err)
	b.board = board
}

// as is an authoriser for everyone.
func as(access dashboard.Access) func(*http.Request) (dashboard.Access, error) {
	return func(*http.Request) (dashboard.Access, error) { return access, nil }
}

// reader may only look.
func reader() dashboard.Config {
	return dashboard.Config{Authorise: as(dashboard.Access{Actor: "reader", Read: true})}
}

// answer is a response with its whole body.
type answer struct {
	status int
	header http.Header
	body   string
}

// text is the body as a reader sees it, without marks.
func (a answer) text() string {
	var text strings.Builder
	rest := a.body
	for {
		before, after, found := strings.Cut(rest, "<")
		text.WriteString(before + " ")
		if !found {
			return strings.Join(strings.Fields(html.UnescapeString(text.String())), " ")
		}
		_, rest, _ = strings.Cut(after, ">")
	}
}

func (b *bench) request(method, page string, form url.Values) *http.Request {
	b.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequestWithContext(context.Background(), method, b.prefix+page, body)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Host, r.RemoteAddr = b.host, b.remote
	return r
}

func (b *bench) serve(r *http.Request) answer {
	b.Helper()
	w := httptest.NewRecorder()
	b.board.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func (b *bench) get(page string) answer {
	b.Helper()
	return b.serve(b.request(http.MethodGet, page, nil))
}

// page is a page that must be there.
func (b *bench) page(page string) answer {
	b.Helper()
	a := b.get(page)
	require.Equal(b, http.StatusOK, a.status, "%s: %s", page, a.text())
	return a
}

func (b *bench) post(page string, form url.Values) answer {
	b.Helper()
	if form == nil {
		form = url.Values{}
	}
	return b.serve(b.request(http.MethodPost, page, form))
}

// do carries out an action that must succeed, and returns the page that it leads to.
func (b *bench) do(page string, form url.Values) answer {
	b.Helper()
	a := b.post(page, form)
	require.Equal(b, http.StatusSeeOther, a.status, "%s: %s", page, a.text())
	return b.page(strings.TrimPrefix(a.header.Get("Location"), "./"))
}

func (b *bench) messages(filter admin.Filter) []admin.Message {
	b.Helper()
	filter.Target = admin.Outbox(dashboardtest.Outbox)
	found, _, err := b.Admin.Messages(context.Background(), filter)
	require.NoError(b, err)
	return found
}

func (b *bench) letters(filter admin.Filter) []admin.DeadLetter {
	b.Helper()
	found, _, err := b.Admin.DeadLetters(context.Background(), filter)
	require.NoError(b, err)
	return found
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, testdb.PollPause)
}

func letterAt(page string, id int64) string { return fmt.Sprintf("%s?id=%d", page, id) }

func messageAt(page string, id int64) string { return fmt.Sprintf("%s?outbox=outbox&id=%d", page, id) }
