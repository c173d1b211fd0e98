package dashboard_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestNew_needs_someone_who_says_who_may_use_it(t *testing.T) {
	t.Parallel()
	shop := dashboardtest.New(t, testdb.SQLite(t))
	_, err := dashboard.New(shop.Admin, dashboard.Config{Title: "Shop"}, nil)
	require.ErrorContains(t, err, "Authorise: it is missing")
}

// A client may send an empty header, to which a proxy adds a second line. So what counts is that a
// header is there.
func TestLoopbackOnly_refuses_each_sign_of_a_proxy(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{Authorise: dashboard.LoopbackOnly})
	for _, name := range []string{
		"Forwarded", "Via", "X-Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Client-Cert",
		"X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Envoy-External-Address", "X-Envoy-Attempt-Count",
		"Fastly-Client-Ip", "X-Original-Forwarded-For", "X-Azure-Clientip",
	} {
		for _, values := range [][]string{{"127.0.0.1"}, {""}, {"", "192.0.2.7"}} {
			r := b.request(http.MethodGet, "", nil)
			r.Header[name] = values
			require.Equal(t, http.StatusForbidden, b.serve(r).status, "%s: %q", name, values)
		}
	}
	r := b.request(http.MethodGet, "", nil)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0 // as nginx asks unless it is told otherwise
	require.Equal(t, http.StatusForbidden, b.serve(r).status)
	require.Equal(t, http.StatusOK, b.get("").status)
}

func TestDashboard_loads_nothing_unseen_for_a_page_of_another_site(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	for _, test := range []struct {
		site, mode, dest string
		want             int
	}{
		{"cross-site", "no-cors", "image", http.StatusForbidden},
		{"cross-site", "cors", "empty", http.StatusForbidden},
		{"same-site", "no-cors", "script", http.StatusForbidden},
		{"cross-site", "navigate", "iframe", http.StatusForbidden},
		{"cross-site", "navigate", "document", http.StatusOK}, // a link
		{"same-site", "navigate", "document", http.StatusOK},
		{"same-origin", "cors", "empty", http.StatusOK}, // an open page loads itself again
		{"none", "navigate", "document", http.StatusOK},
	} {
		r := b.request(http.MethodGet, "letters?error=slow", nil)
		r.Header.Set("Sec-Fetch-Site", test.site)
		r.Header.Set("Sec-Fetch-Mode", test.mode)
		r.Header.Set("Sec-Fetch-Dest", test.dest)
		require.Equal(t, test.want, b.serve(r).status, "%+v", test)
	}
}

// A proxy that refuses the path of an action, such as /ops/bulk-run, must not be passed by
// /ops/x/bulk-run.
func TestDashboard_has_each_page_under_one_path(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	for _, path := range []string{"x/pause", "/pause", "pause/", "x//pause", "./pause", "pause/."} {
		require.Equal(t, http.StatusNotFound, b.post(path+"?outbox=outbox", url.Values{}).status, path)
	}
	queues, err := b.Admin.Queues(t.Context())
	require.NoError(t, err)
	require.Zero(t, queues[0].Pause.Since)
	require.Equal(t, http.StatusNotFound, b.get("x/dashboard.css").status)
}
