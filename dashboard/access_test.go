package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestDashboard_without_authoriser_answers_only_requests_from_this_machine(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	for name, test := range map[string]struct {
		remote, host string
		header       string
		want         int
	}{
		"loopback":               {"127.0.0.1:1", "localhost:8080", "", http.StatusOK},
		"loopback with IPv6":     {"[::1]:1", "[::1]:8080", "", http.StatusOK},
		"IPv4 in IPv6":           {"[::ffff:127.0.0.1]:1", "127.0.0.1", "", http.StatusOK},
		"another address":        {"192.0.2.7:1", "localhost:8080", "", http.StatusForbidden},
		"another with IPv6":      {"[2001:db8::1]:1", "localhost:8080", "", http.StatusForbidden},
		"no address":             {"@", "localhost:8080", "", http.StatusForbidden},
		"a name that leads here": {"127.0.0.1:1", "attacker.example:8080", "", http.StatusForbidden},
		"a longer name":          {"127.0.0.1:1", "localhost.attacker.example", "", http.StatusForbidden},
		"no name":                {"127.0.0.1:1", "", "", http.StatusForbidden},
		"through a proxy":        {"127.0.0.1:1", "127.0.0.1:8080", "X-Forwarded-For", http.StatusForbidden},
		"through another":        {"127.0.0.1:1", "127.0.0.1:8080", "Forwarded", http.StatusForbidden},
		"claims to be near":      {"192.0.2.7:1", "127.0.0.1:8080", "X-Real-Ip", http.StatusForbidden},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			page := ""
			if method == http.MethodPost {
				page = "pause?outbox=none"
			}
			r := b.request(method, page, nil)
			r.RemoteAddr, r.Host = test.remote, test.host
			if test.header != "" {
				r.Header.Set(test.header, "127.0.0.1")
			}
			want := test.want
			if want == http.StatusOK && method == http.MethodPost {
				want = http.StatusNotFound // there is no such outbox
			}
			a := b.serve(r)
			require.Equal(t, want, a.status, "%s %s", name, method)
			if want == http.StatusForbidden {
				require.Contains(t, a.text(), "only requests from the same machine are answered")
				require.NotContains(t, a.text(), "read only", "others may act")
			}
		}
	}
}

func TestDashboard_refuses_a_request_from_a_page_of_another_site(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	for name, header := range map[string]http.Header{
		"a modern browser": {"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://attacker.example"}},
		"a sister site":    {"Sec-Fetch-Site": {"same-site"}},
		"an old browser":   {"Origin": {"https://attacker.example"}},
		"a frame":          {"Origin": {"null"}},
	} {
		for action := range b.board.Routes() {
			r := b.request(http.MethodPost, action+"?outbox=outbox&id=1&do=requeue", url.Values{"reason": {"x"}})
			for field, values := range header {
				r.Header[field] = values
			}
			require.Equal(t, http.StatusForbidden, b.serve(r).status, "%s: %s", name, action)
		}
	}
	queues, err := b.Admin.Queues(t.Context())
	require.NoError(t, err)
	require.Zero(t, queues[0].Pause.Since)

	r := b.request(http.MethodPost, "pause?outbox=outbox", url.Values{})
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Origin", "http://localhost:8080")
	require.Equal(t, http.StatusSeeOther, b.serve(r).status)
}

// A user who may only look sends each action by hand: with the rights of the authoriser, and in the
// mode of the handler.
func TestDashboard_refuses_each_action_of_a_user_who_may_only_read(t *testing.T) {
	t.Parallel()
	readOnly := dashboard.Config{ReadOnly: true}
	editsOnly := dashboard.Config{Authorise: as(dashboard.Access{Read: true, Edit: true})}
	for name, config := range map[string]dashboard.Config{"reader": reader(), "read-only mode": readOnly, "edits without acting": editsOnly} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, testdb.SQLite(t), config)
			b.Die("orders", "card declined", dashboardtest.Message("d-1", "customer-1", "{}"))
			b.Delay("orders", dashboardtest.Message("m-2", "customer-1", "{}"))
			before := b.state()
			actions := b.board.Actions()
			require.GreaterOrEqual(t, len(actions), 12)
			for action := range actions {
				form := url.Values{"reason": {"x"}, "at": {"2031-05-06T07:08"}, "key": {"customer-1"}, "payload": {"{}"}}
				for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodPut} {
					a := b.serve(b.request(method, action+"?outbox=outbox&id=1&do=requeue&key=customer-1", form))
					require.Equal(t, http.StatusForbidden, a.status, "%s %s", method, action)
					require.Contains(t, a.text(), "read only", "the user may read")
				}
			}
			require.Equal(t, before, b.state())

			for _, page := range []string{"", "queue?outbox=outbox", "messages", messageAt("message", 2), "letters", letterAt("letter", 1), "keys"} {
				shown := b.page(page)
				require.NotContains(t, shown.body, `method="post"`, page)
				require.Contains(t, shown.text(), "read only", page)
			}
		})
	}
}

// state is all that an action could have changed.
func (b *bench) state() []any {
	b.Helper()
	queues, err := b.Admin.Queues(context.Background())
	require.NoError(b, err)
	state := []any{b.messages(admin.Filter{}), b.letters(admin.Filter{Resolved: "any"})}
	for _, q := range queues {
		state = append(state, q.Pause.Since, q.PausedKeys, q.Settings)
	}
	return state
}

func TestDashboard_refuses_users_that_the_authoriser_does_not_let_in(t *testing.T) {
	t.Parallel()
	logger := watermill.NewCaptureLogger()
	shop := dashboardtest.New(t, testdb.SQLite(t))
	secret := errors.New("no session of user bob in cluster 7")
	for name, authorise := range map[string]func(*http.Request) (dashboard.Access, error){
		"error":     func(*http.Request) (dashboard.Access, error) { return dashboard.Access{Read: true, Act: true}, secret },
		"no rights": as(dashboard.Access{Act: true, Edit: true}),
	} {
		board, err := dashboard.New(shop.Admin, dashboard.Config{Authorise: authorise}, logger)
		require.NoError(t, err)
		b := &bench{Shop: shop, board: board, prefix: "/", host: "localhost", remote: "127.0.0.1:1"}
		for route, changes := range board.Routes() {
			method := http.MethodGet
			if changes {
				method = http.MethodPost
			}
			a := b.serve(b.request(method, route, nil))
			require.Equal(t, http.StatusForbidden, a.status, "%s: %s", name, route)
			require.NotContains(t, a.body, "cluster 7", "a stranger does not see why")
		}
		require.Equal(t, http.StatusForbidden, b.get("there-is-no-such-page").status, "nor what there is")
	}
	require.NotEmpty(t, logger.Captured()[watermill.InfoLogLevel])
}

func TestDashboard_takes_only_POST_for_an_action_and_only_GET_for_a_page(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	for route, changes := range b.board.Routes() {
		method, allowed := http.MethodPost, "GET, HEAD"
		if changes {
			method, allowed = http.MethodGet, "POST"
		}
		a := b.serve(b.request(method, route+"?outbox=outbox&id=1", nil))
		require.Equal(t, http.StatusMethodNotAllowed, a.status, route)
		require.Equal(t, allowed, a.header.Get("Allow"), route)
	}
	require.Equal(t, http.StatusMethodNotAllowed, b.post("dashboard.js", nil).status)
	require.Equal(t, http.StatusNotFound, b.get("there-is-no-such-page").status)
	head := b.serve(b.request(http.MethodHead, "", nil))
	require.Equal(t, http.StatusOK, head.status)
	require.Empty(t, head.body)
}

func TestDashboard_sends_headers_that_keep_scripts_and_frames_out(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	for _, page := range []string{"", "letters", "there-is-no-such-page", "dashboard.css", "dashboard.js", "icon.svg"} {
		a := b.get(page)
		require.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'self'", page)
		require.Contains(t, a.header.Get("Content-Security-Policy"), "frame-ancestors 'none'", page)
		require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"), page)
		require.Equal(t, "no-referrer", a.header.Get("Referrer-Policy"), page)
		require.Equal(t, "no-store", a.header.Get("Cache-Control"), page)
		if strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
			require.NotRegexp(t, `<script[^>]*>[^<]|<style| style=| on[a-z]+=`, a.body, "%s: nothing is inline", page)
		}
	}
}

func TestDashboard_works_under_any_prefix(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
	mux := http.NewServeMux()
	mux.Handle("/plain/deep/", http.StripPrefix("/plain/deep", b.board))
	mux.Handle("/stripped/", http.StripPrefix("/stripped", b.board))
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, prefix := range []string{"/plain/deep/", "/stripped/"} {
		for _, page := range []string{"", "queue?outbox=outbox", "messages?outbox=outbox", messageAt("message", 1), "letters", "keys", "none"} {
			base, err := url.Parse(server.URL + prefix + page)
			require.NoError(t, err)
			for _, found := range b.links(b.get(page)) {
				require.False(t, strings.HasPrefix(found, "/"), "%s has the absolute address %s", page, found)
				absolute, err := base.Parse(found)
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(absolute.Path, prefix), absolute.Path)
			}
		}
		// net/http itself follows the redirect of an action.
		response, err := http.PostForm(server.URL+prefix+"pause?outbox=outbox", url.Values{}) //nolint:noctx // of this test
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, prefix+"queue", response.Request.URL.Path)
	}
	redirected, err := http.Get(server.URL + "/plain/deep") //nolint:noctx // of this test
	require.NoError(t, err)
	require.NoError(t, redirected.Body.Close())
	require.Equal(t, "/plain/deep/", redirected.Request.URL.Path)
}

func TestDashboard_ten_operators_requeue_the_same_filter_at_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		const letters, operators = 40, 10
		b.DieMany("orders", letters)
		b.DieMany("invoices", 3)
		require.Contains(t, b.page("bulk?do=requeue&topic=orders").text(), "40 dead letters match this filter")

		answers := make([]answer, operators)
		var running sync.WaitGroup
		for i := range answers {
			running.Go(func() { answers[i] = b.post("bulk-run?do=requeue&topic=orders", nil) })
		}
		running.Wait()
		total := 0
		for _, a := range answers {
			require.Equal(t, http.StatusOK, a.status)
			total += finished(t, a)
		}
		require.Equal(t, letters, total, "each letter is requeued by one operator")
		require.Len(t, b.messages(admin.Filter{Topic: "orders"}), letters, "and once")
		require.Len(t, b.letters(admin.Filter{}), 3, "those of another topic stay")
		require.Contains(t, b.page("bulk?do=requeue&topic=orders").text(), "No dead letter matches the filter")
	})
}
